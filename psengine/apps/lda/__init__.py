"""Latent Dirichlet allocation by collapsed Gibbs sampling.

app             the application `LatentDirichletAllocation`, data-parallel: tables, tasks
fold_in         compiled estimation of the topic mixtures of new documents under given topics
kernels         compiled Gibbs sampling: one pass over tokens
model_parallel  the application `ModelParallelLda`: blocks of words rotate, topics of tokens are state of partitions
topic_model     what both have in common: parameters, likelihoods, prediction
"""

from proteus_spot.psengine.apps.lda.app import LatentDirichletAllocation
from proteus_spot.psengine.apps.lda.model_parallel import ModelParallelLda

__all__ = ["LatentDirichletAllocation", "ModelParallelLda"]
