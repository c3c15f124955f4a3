"""What a node has in memory for a job, and how it comes here.

executor_host    the executors of a node, and how their states come here
executor_states  the states of executors that a node has, and replicas for other nodes
partition_host   the input partitions of a node, from other nodes or from storage
shard_host       the shards of a node: opened, taken over, copied to their backups
"""
