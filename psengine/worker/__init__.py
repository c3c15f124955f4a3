"""The worker of a node: it runs micro-tasks and reads and updates parameters.

agent              the agent of a node: carries the controller's instructions out
batch_io           what the micro-tasks of a batch read and add: some rows, whole tables, what the node keeps of
its own
batch_runner       how a node does a batch: what its micro-tasks read, their kernels on the node's threads, the
sums that are pushed
executor_cache     the rows that belong to one partition each, kept by the node that works on it from clock to
clock
kernel_threads     the threads of a node, and what is given to them: groups of jobs that share them, one group
after the other
parameter_client   the process-wide client of a node: one cache, one update log, one message a server, or two
(`flush`)
push_messages      the updates of a batch as they are pushed: added up in blocks, cut to shards, in what others
read and the rest
routing            where a client's messages go: who serves which shard, and what becomes of a call to who has
them no longer
speculative_batch  a batch that a node begins ahead of its order: the way from one bulk-synchronous clock to the
next
"""
