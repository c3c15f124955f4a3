"""AgileML's tiers: stages, the shard map, replication to the reliable tier.

layout        which nodes serve shards in each stage, and which keep their copies: who is to be ParamServ,
ActivePS, BackupPS
loss_burst    whether the transient tier is being lost in a wave, of which more is to come
replication   what is kept of the shards, where, and of which clock
shard_map     who serves which shard, under which epoch: opened, moved where the layout wants them elsewhere,
opened anew after a loss
stages        the stage that a ratio of transient to reliable nodes asks for
tier_manager  the tiers of one job: in which stage it is, who serves and who keeps the shards, and what becomes
of them when nodes go
"""
