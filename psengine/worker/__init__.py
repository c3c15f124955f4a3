"""The worker of a node: it runs tasks and reads and updates parameters.

agent              the agent of a node: carries out the controller's instructions
batch_runner       execution of a batch: reading parameters, running kernels, pushing the summed updates
blocking_work      threads for reads, restores and the preparation of data, with deadlines
hosts              what a node has in memory for a job: partitions, their states, shards
kernel_threads     the thread pool of a node, which runs the kernels of the batches in flight
node_scheduler     the batches in flight on a node, and in which order they begin and are reported
parameter_client   the parameter client of a node: cached reads, batched pushes
routing            requests to the servers by the shard map: redirects, retries, generations, what follows an answer
shard_messages     the messages of pushes and reads: updates summed and cut to shards, rows cut and joined
speculative_batch  a batch that a node begins before its instruction arrives
task_parameters    the tables as one task reads and updates them
"""
