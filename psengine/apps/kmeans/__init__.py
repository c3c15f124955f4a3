"""k-means by Lloyd's algorithm.

app      the application `KMeans`: tables, tasks, evaluation, prediction
kernels  compiled update of cluster sums and counts
seeding  initial centres by greedy k-means++ on a sample
"""

from proteus_spot.psengine.apps.kmeans.app import KMeans

__all__ = ["KMeans"]
