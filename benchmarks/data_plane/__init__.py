"""Benchmarks of push and pull.

data_plane  the way of the parameters: push and pull between a node and a server, from 0.1 to 100 MB
nodes       two nodes and their scheduler as processes, told by pipes what to push and pull: the very path of a
            training job
peers       what stands beside the data plane: bare TCP over loopback, a copy in memory, the same servers as Ray
            actors
"""
