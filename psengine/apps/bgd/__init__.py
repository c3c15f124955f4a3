"""Elastic batch gradient descent of linear models: partitions that vanish are approximated until they return.

app             the application `ElasticDescent`: tables, driver, executors, evaluation, prediction
directions      directions of descent: the negative gradient, L-BFGS
driver          Algorithm 2 as a driver of commit groups: scalars and sets, no vectors
executor        its tasks: gradients of own examples, and work on whole vectors in tables
kernels         compiled products of a CSR matrix with float64 weights
local_cluster   partitions in one process, under a tree whose nodes vanish and return
losses          logistic, softmax, squared hinge and squared error, by margin
master          Algorithm 2 as a state machine, with the baselines that ignore losses or wait
messages        requests of the master, reduced replies, entries of its queue
partition       loss and gradient of one partition, and its loss along a line
reduction_tree  Broadcast and Reduce on a binary tree that survives missing nodes
roster          which partitions a round is made of, and what a loss does to it
steps           step rules: constant, decaying, searched under the Armijo-Wolfe conditions
"""

from proteus_spot.psengine.apps.bgd.app import ElasticDescent

__all__ = ["ElasticDescent"]
