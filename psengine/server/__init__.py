"""The server of a node: the shards it serves.

group_updates   update log of one group: updates by block of partitions, of the highest attempts received
next_group      a shard's tables at the next group, computed as its updates arrive, before it is committed
read_admission  admission control of reads: how many readers are answered at a time, and in which order
served_reads    rows that tasks have read ahead of a commit, and updates that come too late for such a read
shard_server    request handler of a node's shards: epochs, moves, pushes and reads
shard_store     parameters of one shard: the committed state and the pending updates
store_work      work on several shards of a server, with how many bytes it reads and writes
"""
