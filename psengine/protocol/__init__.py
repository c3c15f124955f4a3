"""The values that the controller, the shell and the nodes exchange.

answers           answers of nodes, and how they are sent
checkpoint        reference to a checkpoint: its clock, name and summary
events            events that the controller receives
instructions      instructions that the controller issues
moved_state       state of a shard and of a partition, as it is moved, replicated and restored
protocol_version  the version of the protocol, and why a node of another one is refused
read_version      which state of the tables a read returns
"""
