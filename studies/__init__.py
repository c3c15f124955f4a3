"""Studies: what is computed before a job or apart from one, from files and settings alone, without Prefect.

availability     backtests of jobs with deadlines, on records of what could be had
backtest/        backtests: request, inputs, simulated jobs, tables, report
market_data/     price files, generated markets and eviction models
plan/            plans: cost and end of a job, estimated by simulation before it is bought
prediction/      predictions of a trained model for new data
billing_options  options of the billing models of spot machines
form_fields      fields that jobs and sweeps have in common, checked the same way everywhere
job_spec         the description of a training job; the Prefect form is drawn from it
output_files     output files of a verb, checked before the work
times            times of day and durations as users write and read them
"""
