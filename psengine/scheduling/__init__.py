"""Micro-tasks: which of them may run, where they run, and when a job stops.

dispatcher   the `Dispatch` instructions: which micro-tasks each node is to run now
micro_tasks  table of micro-tasks: completed clocks, running attempts and their nodes
ssp_driver   stale synchronous parallel: which clocks of which partitions may run, given the `staleness`
stopping     stopping rule: the last clock of a job, by its target, a stop, its time limit, or a hold
"""
