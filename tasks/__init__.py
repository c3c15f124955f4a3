"""One file a touch: a name, a retry policy and a Prefect record for each thing that is done to the world.

backtest/        backtests: options, inputs, runs, tables, the story of one job, the report
local/           a run on this machine
market/          what a tick does to the market and the journal of a job
market_data/     price files and eviction models
plan/            plans: what a job would cost and when it would end
prediction/      what a trained model predicts for new data
reports/         what is shown of a job
training/        the training of a job: checks, submission, its controller, following it
billing_options  how spot machines are charged, as users write it on the command line, in a form or in a job's
file
job_records      jobs in the state database: record, look up, open, close
job_spec         what a user asks for: a training job
output_files     files that a verb writes: checked before the work, written whole or not at all after it
runtime          the world that the tasks of this process touch, and how each touch is wrapped for Prefect
times            moments as users write and read them
"""
