"""The controller: one state machine that receives every event and issues every instruction.

checkpoint_schedule  when a checkpoint is written: periodically, on request, and again after a failure
controller           the state machine itself: events in, instructions out
draining             nodes with an eviction notice or a drain request: until when each works, and when it may leave
evaluation_schedule  which clocks are evaluated on held-out data during the training, and the results
history              what is recorded of a job and decides nothing: bytes moved, node changes, timeline, evaluations
job_events           events of the job and of its tasks
model_saving         retries of gathering and saving the final model
node_events          events of nodes and of the shards that they serve
reconciler           what follows from a change: actions that several events share
recovery             rollback after a loss: to replicas of the shards, or to the last checkpoint
state                the state of a controller: members, tiers, tasks, progress
status               the status and the summary of a job as JSON-able dicts
"""
