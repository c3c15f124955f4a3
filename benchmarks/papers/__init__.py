"""The figures of the papers, measured again. They are in a clone, and not in the wheel.

bgd/         elastic batch gradient descent beside its baselines
litz/        what the evaluation of Litz shows: model parallelism, partitions a core, scaling, memory
many_nodes/  many nodes on one machine: stages, elasticity, scaling
sweeps/      hyper-parameter sweeps: stopping rules, predictions of curves
"""
