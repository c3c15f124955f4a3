"""Reports on a job.

alarm_lines    alarms of a job's machines, recorded by ticks or waiting for one
job_list       list of jobs and their costs over several state databases
job_log        lines on a job's progress for the log of its run
job_report     HTML report of a job, from the state database alone
job_snapshot   the state of a job in one value, for terminal and report
job_summary    events and costs of a job, from journal, ledger and result
log_lines      logs of the nodes, from the blob store
publish        page of a job in the Prefect UI, report in the blob store
training_page  HTML page of a local training, from its `--json` figures
"""
