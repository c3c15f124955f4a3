"""AgileML's tiers: stages, the shard map, replication to the reliable tier.

layout          the nodes that serve shards and those that store replicas, by stage: ParamServ, ActivePS, BackupPS
measured_stage  stage 2 or 3 by the measured time of kernels and transfers
replication     replication rounds: which clock of the shards has replicas, and on which nodes
scale_in        nodes and servers that a job no longer needs, as its memory falls
shard_map       the server and the epoch of each shard: opening, moves, reopening after a loss
stages          the stage for a ratio of transient to reliable nodes
tier_manager    the tiers of one job: its stage, layout, moves, replication and restoration from replicas
"""
