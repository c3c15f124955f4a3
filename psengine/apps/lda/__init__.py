"""Latent Dirichlet allocation by collapsed Gibbs sampling.

app      latent Dirichlet allocation by collapsed Gibbs sampling: which topics a collection of documents is made
of
fold_in  topic mixtures of documents under given topics, for `psengine.apps.lda.app`
kernels  gibbs sampling for `psengine.apps.lda.app`: one pass over tokens
"""

from psengine.apps.lda.app import LatentDirichletAllocation

__all__ = ["LatentDirichletAllocation"]
