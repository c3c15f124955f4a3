"""The server of a node: the shards it serves and the replicas it holds.

group_updates   update log of one group: updates by block of partitions, of the highest attempts received
large_work      large work of an event loop, done on a thread
next_group      a shard's tables at the next group, computed as its updates arrive, before it is committed
read_admission  admission control of reads: how many readers are answered at a time, and in which order
replica_store   replicas of shards that a node stores, by replication round
served_reads    rows that tasks have read ahead of a commit, and updates that come too late for such a read
shard_server    request handler of a node's shards: epochs, moves, pushes and reads
shard_store     parameters of one shard: the committed state and the pending updates
store_work      work on several shards of a server, with how many bytes it reads and writes
"""
