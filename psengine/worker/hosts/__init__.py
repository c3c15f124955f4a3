"""What a node has in memory for a job, and how it comes here.

partition_host    the input partitions of a node, from other nodes or from storage
partition_states  the states of partitions that a node has, and replicas for other nodes
resident_host     the executors of a node's partitions, and how their states come here
shard_host        the shards of a node: opened, taken over, copied to their backups; replicas of others
"""
