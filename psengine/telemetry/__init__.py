"""Records of a training: progress, traffic, stalls, the event log.

byte_counts        what a job has moved, in bytes by kind: counted where it is received or sent, told with what
a node reports anyway
event_log          the story of a job: each event and instruction that touched a node or a shard, as entries for
people
formatting         numbers as people read them
stalls             how long those who stayed waited when nodes came or went: from the time of each clock and a
log of changes
timeline           what a job looked like over time: its stage, its nodes, who served and kept which shard
training_progress  what the training has come to: losses, durations and who did the work, clock by clock
"""
