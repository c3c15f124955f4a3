"""Drivers: which tasks of a job are dispatched when, and which of them are committed together.

interface  the protocols Driver and Dispatcher, and what they exchange: Task, Done
rotation   blocks of the model that rotate among the partitions
ssp        stale synchronous parallel, the default driver: one task of every partition in each group
"""
