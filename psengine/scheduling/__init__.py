"""Micro-tasks: which of them may run, where they run, and when a job stops.

dispatcher   which micro-tasks go to which node now, as messages
micro_tasks  the book of micro-tasks: what is done, what runs where under which attempt
ssp_driver   stale synchronous parallel: every partition once a clock, nobody more than `staleness` clocks ahead
stopping     how far a job goes: to its target, to where a stop or its time ends it, or for the time being to
where it is held
"""
