"""Files in the blob store: checkpoints, prices, logs.

alarms              why machines end themselves, one blob per machine
blobs               blobs under one fsspec URL; sets of files with a manifest
checkpoints         checkpoints of a job: one set per clock, one file per shard
conditional_writes  writes that are made only where nobody has written meanwhile
event_logs          the event log of a job, in pages of JSON lines
fences              which of the state databases of one owner ticks a job, one blob per job
job_paths           the blob names of a job
leases              the time until which a machine may live, one blob per machine
node_logs           the logs of nodes and controllers, one blob per process
price_store         observed spot prices, stored permanently
trial_paths         the blob names of a sweep's trials
"""
