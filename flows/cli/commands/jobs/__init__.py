"""Verbs for jobs on a Prefect server.

jobs    the verb `jobs`: the list of jobs
panic   the verb `panic`: the end of all machines of an owner
stop    the verb `stop`: the request to end a job
submit  the verb `submit`: a job file sent to Prefect
up      the verb `up`: a Prefect server and all deployments on this machine
"""
