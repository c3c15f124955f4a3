"""Files in the blob store: checkpoints, prices, logs.

backtest_cache  finished cells of a backtest on disk, each under the digest of all that decides it: an
interrupted one goes on
blobs           blobs under one URL: data, models, logs and the rendezvous of every job
checkpoints     checkpoints of a job in the blob store: one set a clock, one file a shard; only the newest whole
one is kept
event_logs      the story of a job in its blobs: pages of JSON lines under ``jobs/<id>/story/``, of which the
newest are kept
job_paths       where the files of a job lie in the blob store
node_logs       what a node says, kept in the job's blobs: one object an incarnation of its process, which
outlives the machine
price_store     the prices that we have observed, kept for ever: AWS itself remembers 90 days
"""
