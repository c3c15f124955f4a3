"""Hyper-parameter sweeps: their description, and what a flow does for one.

artifacts    a sweep in the Prefect UI: page, table of trials, progress
checks       checks of a sweep with what is on this machine alone
local/       a sweep on this machine alone, without a market
markets      where trials may run: by name, or by size, resolved against what is on sale
mlflow_runs  the trials of a sweep as runs of MLflow
page         the report of a sweep, and a sweep as it is followed
recording    curves and step times of a sweep's trials, for simulations
samplers     which settings the trials try: grid, random draws, Optuna's samplers
spec         the description of a sweep; sweep.yaml and the Prefect form have its fields
view         a sweep at one moment, made from its journal and its ledger
"""
