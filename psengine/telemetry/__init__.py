"""Records of a training: progress, traffic, stalls, the event log.

byte_counts        counters of the bytes that a job has moved, by kind and process
descriptions       events and instructions that concern a node or a shard, as text
event_log          the event log: frozen events, from which timeline, stalls and pages of a job are derived
formatting         formatting of number ranges and byte sizes
memory_use         memory of a node by what it is used for
stalls             delays of the training by joins and losses of nodes, from clock times and changes of nodes
timeline           changes of stage, nodes, servers and backups over time
training_progress  losses, durations and work by tier, clock by clock
"""
