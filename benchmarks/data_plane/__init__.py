"""Benchmarks of push and pull.

data_plane  benchmark `data-plane`: push and pull between a node and a server, from 0.1 to 100 MB
nodes       two nodes and their scheduler as processes, on the code path of a training job
peers       the peers: bare TCP over loopback, a copy in memory, the same servers as Ray actors
"""
