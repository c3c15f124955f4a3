"""Runs on one machine: servers, nodes and child processes.

announcement         the file in which `proteus up` says where its servers are
child_process        child processes that end with this process, each in its own process group
deployments          the deployments of prefect.yaml on a local server, and their worker
environment          the environment of a local run: clock, simulated market, Prefect server
job_stores           state databases: that of the settings, and those of local runs
node_events          CSV scripts of joins, notices, kills and drains of a local training
nodes                the nodes of one job as local processes, without a market
parent_death_signal  a launcher that makes a command end with its parent process
prefect_server       a private Prefect server for a local run
"""
