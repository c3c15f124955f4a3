"""Prefect tasks: the steps of flows, each with a name, a retry policy and a Prefect record, and what they compute.

backtest/        backtests: request, inputs, simulated jobs, tables, report
ending/          a job kept going, and its certain end: stops, deadlines, the reliable tier
local/           runs on this machine: checks, environment, training, scripted node events
market/          one job on the spot market: prices, decisions, purchases, ledger
market_data/     price files, generated markets and eviction models
plan/            plans: cost and end of a job, estimated by simulation before it is bought
prediction/      predictions of a trained model for new data
reports/         reports on a job: status, summary, list of jobs, HTML pages, node logs
sweeps/          hyper-parameter sweeps: description, samplers, tables, pages
training/        training of a job: checks, submission, its controller, progress
billing_options  options of the billing models of spot machines
form_fields      fields that jobs and sweeps have in common, checked the same way everywhere
job_ends         requests to end a job, which ticks carry out
job_events      events of jobs in Prefect's event feed
job_leases       the leases of a job's machines, which ticks extend, and the alarms of machines
job_pages       the page of a job in the Prefect UI, one artifact
job_records      jobs and sweeps in the state database: record, look up, settle; their common terms
job_spec         the description of a training job; the Prefect form is drawn from it
output_files     output files of a verb: checked before the work, written atomically after it
panic            the end of all machines of an owner, without database or Prefect
run_labels      names and tags of flow runs
runtime          the runtime (set of adapters) of this process, and the task decorator with its retry policy
times            times of day and durations as users write and read them
"""
