"""What a node has in memory for a job, and how it comes here.

partition_host  the input partitions of a node, from other nodes or from storage
"""
