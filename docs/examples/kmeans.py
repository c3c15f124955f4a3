"""k-means by Lloyd's steps, one a clock: the example of docs/applications.md.

Table `clusters` has a row for each cluster: the sum of its examples, and their number. Updates are added to a table, so
a partition adds the sums that it finds now and takes its share of the old ones back; over all partitions the shares are
the whole, and what remains is the new sums.
"""

import numpy as np

from proteus_spot import TableSpec, Work


class KMeans:
    """`k` clusters of inputs that lie between 0 and `spread`."""

    predicts = "cluster"

    def __init__(self, n_inputs, n_examples, *, k=8, spread=1.0):
        self.n_inputs, self.n_examples, self.k, self.spread = n_inputs, n_examples, k, spread

    def tables(self):
        """Return the one table."""
        return (TableSpec("clusters", self.k, self.n_inputs + 1, "float64"),)

    def initial(self, table, rows, rng):
        """Let each cluster begin as one example, anywhere."""
        first = rng.uniform(0, self.spread, (rows[1] - rows[0], table.n_cols))
        first[:, -1] = 1.0
        return first

    def prepare(self, arrays):
        """Take the inputs of one partition; labels are of no use here."""
        return arrays["x"].astype(np.float64)

    def run(self, data, params, clock):
        """Sum the examples that are nearest to each centre."""
        old = params["clusters"]
        nearest, distances = self._nearest(data, old)
        mine = (nearest[:, None] == np.arange(self.k)).astype(np.float64)
        new = np.hstack([mine.T @ data, mine.sum(axis=0)[:, None]])
        share = len(data) / self.n_examples
        return Work({"clusters": new - share * old}, float(distances.sum()), len(data))

    def evaluate(self, params, heldout):
        """Return the mean squared distance of the held-out examples to their nearest centre."""
        return {"inertia": float(self._nearest(self.prepare(heldout), params["clusters"])[1].mean())}

    def predict(self, params, arrays):
        """Return the nearest cluster of each example, for `proteus predict`."""
        return self._nearest(self.prepare(arrays), params["clusters"])[0]

    def _nearest(self, x, clusters):
        centres = clusters[:, :-1] / np.maximum(clusters[:, -1:], 1.0)
        squares = (x**2).sum(axis=1)[:, None] - 2 * x @ centres.T + (centres**2).sum(axis=1)
        return squares.argmin(axis=1), squares.min(axis=1)
