"""Matrix factorisation by stochastic gradient descent.

app      matrix factorisation by stochastic gradient descent, the items rotated among the partitions
kernels  stochastic gradient descent over the ratings of a block: one thread, no GIL, one order of work
"""

from psengine.apps.mf.app import MatrixFactorization

__all__ = ["MatrixFactorization"]
