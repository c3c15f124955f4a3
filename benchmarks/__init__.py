"""Benchmarks: each puts one of our figures beside a peer or a limit that was measured in the same run.

data_plane/  benchmarks of push and pull
many_nodes/  benchmarks of many nodes on one machine
market/      benchmarks of the bidding side
training/    benchmarks of training on two nodes
figure       what a benchmark gives back
runner       what ``proteus bench [NAME…]`` runs: each benchmark beside its peer or limit
"""
