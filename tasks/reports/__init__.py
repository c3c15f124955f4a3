"""What is shown of a job.

job_list       the jobs, a line each, and what they have cost, from every state database that a user means
job_page       the report of a job: gathered from the state database alone, and written as one HTML file
job_snapshot   how a job stands, in one value: what the terminal shows and what a report begins with
job_summary    what a job did and what it cost, read from the journal, the ledger and the result
node_logs      what the nodes of a job said, read from the blob store; they, and their machines, may be long
gone
publish        a job at one look: its picture in the Prefect UI, its report in the blob store
training_page  the page of a training on this machine: pictures over time, and its figures as tables, from what
`--json` writes
"""
