"""The engine on Dask: the only package of psengine that imports `distributed`.

controller_shell    the shell around the controller: feeds it events, carries its instructions out by calls to
the nodes
dask_plugins        where the engine hangs on Dask: one plugin on each worker, one on the scheduler
dask_transport      calls between processes over Dask: connections, deadlines, frames
evaluator           holding a model against the held-out data, in the controller's process, on a thread beside
its event loop
event_log_writer    writing the story of a job down, page by page, off the way of what it tells of
instruction_queues  orders on their way to the nodes: each node's in order and numbered, so that one that came
twice is told apart
shard_gathering     the shards of a committed clock, collected from those who serve or keep them
"""
