"""Hyper-parameter sweeps: their description, and what a flow does for one.

running/          a sweep under way: opened, decided on by ticks, followed to its end
best_trial        the best trial of a sweep, saved
engine_inputs     the plan of a sweep, and events of what its trials report
given_sweep       a sweep as a user gives it: file, id, paths, markets
import_check      a free look at a trial's file: it is imported in a process of this machine
local_sweep       a sweep as processes of this machine, with its journal in a file
markets           where trials may run: by name, or by size, resolved against what is on sale
mlflow_runs       the trials of a sweep as runs of MLflow
samplers          which settings the trials try: grid, random draws, Optuna's samplers
sweep_artifacts   a sweep in the Prefect UI: page, table of trials, progress
sweep_checks      checks of a sweep with what is on this machine alone
sweep_folder      the folder of such a sweep: its journal and its description, and the sweep that they show
sweep_page        the report of a sweep, and a sweep as it is followed
sweep_spec        the description of a sweep; sweep.yaml and the Prefect form have its fields
sweep_state       a sweep at one moment, made from its journal and its ledger
sweep_submission  submission of a sweep to a Prefect server
"""
