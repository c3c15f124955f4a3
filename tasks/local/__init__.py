"""A run on this machine.

checks       what can be known to be wrong with a run on this machine before anything is started, bought or
written
environment  a world of one's own for a run on this machine: the market's file, the servers, and the way into it
event_log    the story of one node or shard of a job that ran on this machine, from what its controllers kept
node_events  carrying out a script of joins, notices, kills and drains, each at its moment and once in the life
of a job
pause        a run on this machine that ends before its time: what it has come to is kept, so that the same job
goes on from there
run_files    what a local training writes beside the engine's own blobs: how it was begun, what happened to its
nodes, its figures
training     one training job on nodes of this machine: no market, no Prefect; what the engine does, and a
script of what befalls it
"""
