"""Reports on a job.

alarms         alarms of a job's machines, recorded by ticks or waiting for one
job_list       list of jobs and their costs over several state databases
job_log        lines on a job's progress for the log of its run
job_page       HTML report of a job, from the state database alone
job_snapshot   the state of a job in one value, for terminal and report
job_summary    events and costs of a job, from journal, ledger and result
node_logs      logs of the nodes, from the blob store
publish        page of a job in the Prefect UI, report in the blob store
training_page  HTML page of a local training, from its `--json` figures
"""
