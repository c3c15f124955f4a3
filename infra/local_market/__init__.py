"""The servers of a simulated market on this machine, and where its jobs are recorded.

announcement    the file in which `proteus up` says where its servers are
deployments     the deployments of prefect.yaml on a local server, and their worker
environment     the environment of a local run: clock, simulated market, Prefect server
job_stores      state databases: that of the settings, and those of local runs
prefect_server  a private Prefect server for a local run
"""
