"""Latent Dirichlet allocation by collapsed Gibbs sampling.

app      the application `LatentDirichletAllocation`: tables, micro-tasks, evaluation, prediction
fold_in  compiled estimation of the topic mixtures of new documents under given topics
kernels  compiled Gibbs sampling: one pass over tokens
"""

from psengine.apps.lda.app import LatentDirichletAllocation

__all__ = ["LatentDirichletAllocation"]
