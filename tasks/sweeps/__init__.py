"""Hyper-parameter sweeps: their description, and what a flow does for one.

artifacts      a sweep in the Prefect UI: page, table of trials, progress
best           the best trial of a sweep, saved
checks         checks of a sweep with what is on this machine alone
engine_inputs  the plan of a sweep, and events of what its trials report
local/         a sweep on this machine alone, without a market
markets        where trials may run: by name, or by size, resolved against what is on sale
mlflow_runs    the trials of a sweep as runs of MLflow
page           the report of a sweep, and a sweep as it is followed
reading        a sweep as a user gives it: file, id, paths, markets
running/       a sweep under way: opened, decided on by ticks, followed to its end
samplers       which settings the trials try: grid, random draws, Optuna's samplers
spec           the description of a sweep; sweep.yaml and the Prefect form have its fields
submit         submission of a sweep to a Prefect server
view           a sweep at one moment, made from its journal and its ledger
"""
