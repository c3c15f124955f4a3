"""The values that the controller, the shell and the nodes exchange.

checkpoint    a checkpoint, as the controller and the nodes name it
events        what the controller hears
instructions  what the controller wants done
shard_state   the state of one shard, as it is moved, copied and kept
"""
