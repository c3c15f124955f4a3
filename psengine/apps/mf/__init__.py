"""Matrix factorisation by stochastic gradient descent.

app             the application `MatrixFactorization`: tables, rotation of items by clock, tasks, evaluation
kernels         compiled stochastic gradient descent over the ratings of a block
model_parallel  the application `ModelParallelFactorization`: a driver rotates the items
"""

from proteus_spot.psengine.apps.mf.app import MatrixFactorization
from proteus_spot.psengine.apps.mf.model_parallel import ModelParallelFactorization

__all__ = ["MatrixFactorization", "ModelParallelFactorization"]
