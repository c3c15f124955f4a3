"""Prefect flows that read top to bottom, and the command line.

cli/             the command `proteus`
local_market/    jobs and sweeps over the simulated market of this machine
terminal/        terminal output of the verbs
allocation_tick  flow of the tick: observe prices and machines, decide, buy and release
automations      automations of the Prefect server: crashed runs, notifications
backtest         flow of a backtest: table and pictures as Prefect artifacts
handle_eviction  flow of an eviction notice: record it and decide at once
ingest_prices    flow that extends the stored price history
local_training   `proteus train`: the engine alone on local nodes
reap             flow that terminates orphaned machines
renew_hour       flow at the end of a billing hour: renew or release an allocation
sweep            flow of a hyper-parameter sweep, from submission to the best trial
train            flow of a training job, from submission to result
"""
