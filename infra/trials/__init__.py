"""Trials of a sweep: what runs on a trial's machine, on a laptop and in a test. No Prefect, no database.

adapters/           loops for estimators of scikit-learn, LightGBM and XGBoost
child               the process of a trial as its supervisor holds it
deployment_state    the state of a supervisor's deployment
engine_application  an application of the engine as a trial, in one process
messages            the messages between a trial's process and its supervisor
process             the process that runs a training function
saved_states        saved states as files, without pickle
shipping            code, requirements and data on their way to the machines
state_store         the uploaded states of a trial
supervisor          runs a deployment of a trial: notices, orders, uploads, reports
trial               `Trial`, the object that a training function gets
trial_documents     the JSON documents of a trial: setting, orders, report
trial_errors        what is wrong with a trial, in one line
"""
