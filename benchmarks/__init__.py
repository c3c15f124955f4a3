"""Benchmarks: each compares a figure of Proteus with a peer or a limit measured in the same run.

data_plane/  push and pull of parameters
many_nodes/  what many nodes cost the controller
market/      the bidding side: prices, ticks, backtests, the EC2 endpoint
nets/        nets beside bare DiLoCo and synchronous training
papers/      the figures of the papers, measured again; in a clone alone
training/    training on two nodes
command      the verb `proteus bench`
figure       the result of a benchmark
pictures     panels of the benchmarks' pictures, and their files
runner       runs benchmarks by name, and prints their figures
"""
