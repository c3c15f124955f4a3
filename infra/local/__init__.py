"""Runs on one machine: servers, nodes and child processes.

child_process        child processes that never outlive us: each in a group of its own, ended as a whole, and by
the kernel if we die
environment          what a run on one machine needs and does not have: a clock, a market behind an EC2
endpoint, a Prefect API
job_stores           where jobs are recorded: the database of the settings, and those of the local runs below this
directory
node_events          a script of what happens to the nodes of a local training: a CSV that a user writes, read
and checked as a whole
nodes                the nodes of one job as processes of this machine, around one blob store: no market, nobody
who buys them
parent_death_signal  become another program, on a leash: it is told to end when the process that started it is
gone
prefect_server       a Prefect server of our own on this machine, for runs that have none
"""
