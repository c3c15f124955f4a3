"""Matrix factorisation by stochastic gradient descent.

app      the application `MatrixFactorization`: tables, rotation of items, micro-tasks, evaluation
kernels  compiled stochastic gradient descent over the ratings of a block
"""

from psengine.apps.mf.app import MatrixFactorization

__all__ = ["MatrixFactorization"]
