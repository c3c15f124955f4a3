"""Tasks: which of them may run, where they run, and when a job stops.

dispatcher    the `Dispatch` instructions: which tasks each node is to run now
driver_host   the driver of a job: its calls, its snapshots, its rollback
stopping      stopping rule: the last clock of a job, by its target, a stop, its time limit, or a hold
task_records  tasks that were sent, groups that are not committed, and what a task may read after
task_table    table of tasks: queues, running attempts and their nodes, committed groups
"""
