"""Nodes: which are members, which are lost, and which partitions each works on.

failure_detector  whose heartbeats have stopped: a node that is silent for longer than a bound is done without
join_batching     nodes that join while a training goes on, planned for together
membership        who is there, and who owns which partition: the half of the controller that knows nodes
node_record       what the controller knows of one node
placement         which node works on which partition: balanced by threads, moving as little as can be,
deterministic
reachability      which node is done without where two cannot reach each other, while the controller reaches
both
"""
