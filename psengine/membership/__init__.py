"""Nodes: which are members, which are lost, and which partitions each works on.

event_batch       events that follow each other closely, handled at once: joins, and losses in a burst
failure_detector  which nodes are considered lost because their heartbeats have stopped
membership        the nodes of a job, their states, and which partitions each owns and loads
node_index        the nodes by name, address and state
node_record       state of one node
placement         assignment of partitions to nodes: balanced by threads, few moves, deterministic
reachability      which of two nodes is excluded when they cannot reach each other but the controller reaches both
state_refs        which process has the state of each partition
"""
