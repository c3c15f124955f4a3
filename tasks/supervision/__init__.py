"""How a job is kept going, and how it ends for certain: the steps of ticks, and the verb `stop`.

cancelled_runs     runs of `train` that were cancelled in the Prefect UI: a request to stop
deadlines          deadlines for the start, for joining and for progress
job_stop           a stop carried out: the controller saves the model, the job is closed
machine_ends       machines of a job, whatever the book says: all of them ended at once
open_jobs          an open job at a tick: kept training on machines that work, or closed
stop_answer        the request of `proteus stop`, and its answer: what stays, until when and why
turns              turns of the jobs of a queue, for which their runs wait
"""
