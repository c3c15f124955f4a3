"""Benchmarks: each compares a figure of Proteus with a peer or a limit measured in the same run.

bgd/         elastic batch gradient descent beside its baselines
data_plane/  push and pull of parameters
litz/        what the evaluation of Litz shows: model parallelism, executors a core, scaling, memory
many_nodes/  many nodes on one machine: stages, elasticity, scaling
market/      the bidding side: prices, ticks, backtests, the EC2 endpoint
sweeps/      hyper-parameter sweeps: stopping rules, predictions of curves
training/    training on two nodes
figure       the result of a benchmark
pictures     panels of the benchmarks' pictures, and their files
runner       the command ``proteus bench [NAME…]``
"""
