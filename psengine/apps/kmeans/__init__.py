"""k-means by Lloyd's algorithm.

app      k-means by Lloyd's algorithm, data-parallel and exact: as many clocks do what one machine would do
kernels  what k-means does example by example: one thread, no GIL, one order of summation
seeding  the first centres of k-means: k-means++ on a sample, greedy
"""

from psengine.apps.kmeans.app import KMeans

__all__ = ["KMeans"]
