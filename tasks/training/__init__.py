"""Training of a job: checks, submission, its controller, progress.

application_checks  checks of an application and its parameters before anything is started
data_checks         checks of the user's data before a job begins
hints               one-line hints on a training that has ended
job_config          the engine's configuration of a job, from its description and its data
preparation         checks of a job before anything is bought, and its data, code and keys for its machines
run_names           names and tags of the runs of `train`
running_controller  the training as its controller, met where the market confirms it, reports it
submission          submission of a job to the Prefect server
traffic             bytes between zones: noted at ticks, and what a vCPU-hour of them costs
work_left           the work that a job has left before its deadline
"""
