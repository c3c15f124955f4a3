"""The server of a node: the shards it serves and the replicas it holds.

clock_updates   the updates of one clock by block of partitions, those of the highest attempts that have come
deduplication   which messages of one sender have come already: each counts once, however often it comes
next_clock      what becomes of a shard's tables with the next clock: worked out as its effects come, before it
is committed
read_admission  whose turn it is to be answered, where many read from one server at the same time
replica_store   the copies of shards that a node keeps, its own servers' and those of others, each of one round
of backups
shard_server    the server of a node: the shards it serves, and the checks that every message passes
shard_store     the parameters of one shard: what is committed, and what came after it
"""
