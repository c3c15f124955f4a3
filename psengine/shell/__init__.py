"""The engine on Dask: the only package of psengine that imports `distributed`.

callbacks           access of the controller's process to stores and clocks, implemented by infra
control_port        the controller's port for the control plane: JSON, never pickles
controller_shell    the shell around the controller: feeds it events and carries out its instructions
dask_plugins        Dask plugins: one on each worker, one on the scheduler
dask_transport      the transport over Dask: connections, deadlines, serialization
evaluator           evaluation of models on held-out data, on a thread of the controller's process
event_log_writer    the event log of a job, written page by page in the background
gathering           collection of shards of a committed clock and of states of partitions from the nodes
instruction_queues  queues of instructions to the nodes: ordered, numbered, retried
node_watch          which processes were lost: connections, heartbeats, nodes cut off from others
state_saving        saving of the model and of checkpoints, and evaluation of clocks
"""
