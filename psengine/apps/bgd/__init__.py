"""Elastic batch gradient descent of linear models: partitions that vanish are approximated until they return.

app         the application `ElasticDescent`: tables, driver, partitions, evaluation, prediction
directions  L-BFGS: its direction of descent, and the pairs that it is made of
driver      Algorithm 2 as a driver of commit groups: scalars and sets, no vectors
kernels     compiled products of a CSR matrix with float64 weights
losses      logistic, softmax, squared hinge and squared error, by margin
partition   loss and gradient of one partition, and its loss along a line
roster      which partitions a round is made of, and what a loss does to it
steps       step rules: constant, decaying, searched under the Armijo-Wolfe conditions
tasks       the tasks: gradients of own examples, and work on whole vectors in tables
"""

from proteus_spot.psengine.apps.bgd.app import ElasticDescent

__all__ = ["ElasticDescent"]
