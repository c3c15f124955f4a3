"""Prefect tasks: the steps of flows, each with a name, a retry policy and a Prefect record, and what they compute.

doctor/             checks of a set-up, with the fix of what is wrong
local_market/       jobs over a simulated market on this machine
local_nodes/        nodes on this machine without a market
market/             one job on the spot market: prices, decisions, purchases, ledger
reports/            reports on a job: status, summary, list of jobs, HTML pages, node logs
supervision/        a job kept running, and its certain end: stops, deadlines, the reliable tier
sweeps/             hyper-parameter sweeps: description, samplers, tables, pages
training/           training of a job: checks, submission, its controller, progress
backtest_artifacts  progress, table and pictures of a backtest in the Prefect UI; its report in the blob store
event_feed          events of jobs in Prefect's event feed
job_ends            requests to end a job, which ticks carry out
job_leases          the leases of a job's machines, which ticks extend, and the alarms of machines
job_pages           the page of a job in the Prefect UI, one artifact
job_queues          queues of jobs that run one after the other: whose turn it is
job_records         jobs and sweeps in the state database: record, look up, settle; their common terms
metrics             the figures of jobs and sweeps for Prometheus
panic               the end of all machines of an owner, without database or Prefect
run_labels          names and tags of flow runs
task_runtime        the runtime (set of adapters) of this process, and the task decorator with its retry policy
"""
