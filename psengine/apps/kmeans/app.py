"""k-means by Lloyd's algorithm, data-parallel and exact: a clock is one step of the algorithm on one machine.

Each clock assigns every example to the nearest centre; the updates are the changes of the clusters' sums and counts by
the examples that moved. Late clocks, in which few move, cost little more than the distances.

Source: Lloyd, "Least squares quantization in PCM" (1982); the state of a partition as in Litz (2017), 3.1.

Differs: the first centres are drawn by one partition, by k-means++ on its own examples. Partitions are dealt at random,
so these are a fair sample, no node sees all of the data, and nothing travels but the centres.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps import kernel_cache as kernels
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.csr import Csr, inputs
from proteus_spot.psengine.apps.kmeans.seeding import spread_out
from proteus_spot.psengine.apps.parameter_checks import check_whole
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sharding import Arrays

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Params = Mapping[str, NDArray[np.generic]]

#: Number of rows whose distances are computed at a time, and the maximum number of values in such a block.
_BLOCK, _MOST_NUMBERS = 512, 2**20
#: Size of the sample for the first centres: examples per centre, and minimum.
_SAMPLE_PER_CENTRE, _LEAST_SAMPLE = 20, 1000
_KERNELS = "proteus_spot.psengine.apps.kmeans.kernels"


@dataclass(frozen=True)
class KMeansData:
    """One partition: inputs (n, n_inputs) float32, dense or compressed rows, and its first row in the training set."""

    x: F32 | Csr
    first: int

    @property
    def rows(self) -> slice:
        """The partition's rows of the training set."""
        return slice(self.first, self.first + self.x.shape[0])


class KMeans:
    """`k` clusters, each the examples that are nearest to its mean.

    Parameters
    ----------
    n_inputs, n_examples : int
        Sizes of the training set.
    k : int
        Number of clusters, at most `n_examples`.
    init_seed : int
        Seed of the first centres.

    Notes
    -----
    Tables: `sums` (k, n_inputs) float64, of the examples of each cluster; `counts` (k, 2) int64, their number, and 1
    once the cluster has a centre; `centres` (k, n_inputs) float64, the centres in the previous clock, for clusters that
    lose their last example; `assignments` (n_examples, 1) int32, the cluster of each example from 1, 0 for none yet.

    Clock 1 draws the centres; Lloyd's steps begin with clock 2.
    """

    predicts = "cluster"
    clocks_per_pass = 1

    def __init__(self, n_inputs: int, n_examples: int, *, k: int = 8, init_seed: int = 0) -> None:
        check_whole(1, k=k)
        check_whole(0, init_seed=init_seed)
        self.n_inputs, self.n_examples = n_inputs, n_examples
        self.k, self.init_seed = k, init_seed

    def check_sizes(self) -> None:
        """Raise ValueError if there are more clusters than examples."""
        if self.k > self.n_examples:
            raise ValueError(f"k is {self.k}, and there are {self.n_examples} examples; want at most one cluster each")

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the four tables."""
        return (
            TableSpec("sums", self.k, self.n_inputs, "float64"),
            TableSpec("counts", self.k, 2, "int64"),
            TableSpec("centres", self.k, self.n_inputs, "float64"),
            TableSpec("assignments", self.n_examples, 1, "int32", own=True),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return zeros: no example is in a cluster."""
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols), table.dtype)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> KMeansData:
        """Return the inputs of a partition; labels are ignored. ValueError names an array that does not fit."""
        x = self._inputs(arrays)
        if "first" not in arrays:
            raise ValueError(
                "the partition does not say where it begins ('first'); prepare the data under another job id"
            )
        data = KMeansData(x, int(arrays["first"]))
        if not 0 <= data.rows.start <= data.rows.stop <= self.n_examples:
            raise ValueError(f"rows {data.rows.start} to {data.rows.stop}: the training set has {self.n_examples}")
        self.check_sizes()
        kernels.load(_KERNELS)  # compiled here, not during a clock
        return data

    def rows(self, data: KMeansData, clock: int) -> Mapping[str, RowSet]:
        """Return the rows of the partition's assignments; of the other tables all rows are needed."""
        del clock
        return {"assignments": data.rows}

    def run(self, data: KMeansData, params: Params, clock: int) -> Work:
        """Move this partition's examples to their nearest centres; the loss is their squared distances to these.

        In clock 1 there are no centres, and the loss is that of one cluster per partition.
        """
        if clock == 1:
            return Work(self._draw_centres(data), self._spread(data.x), data.x.shape[0])
        from proteus_spot.psengine.apps.kmeans.kernels import move

        centres, drawn = self._centres(params)
        if not drawn.any():  # under staleness they may not have arrived yet
            return Work({}, self._spread(data.x), data.x.shape[0])
        sums, counts = np.zeros((self.k, self.n_inputs)), np.zeros((self.k, 2), np.int64)
        old = np.ascontiguousarray(params["assignments"][:, 0], np.int32)
        new = np.empty_like(old)
        loss = 0.0
        for at, x, nearest, distances in self._nearest(data.x, centres, drawn):
            new[at] = nearest + 1
            loss += float(distances.sum())
            move(x, old[at], new[at], sums, counts)
        updates: Arrays = {"sums": sums, "counts": counts, "assignments": (new - old)[:, None]}
        if data.first == 0:  # one partition updates the centres for all
            updates["centres"] = np.where(drawn[:, None], centres - np.asarray(params["centres"], np.float64), 0.0)
        return Work(updates, loss, len(new))

    def evaluate(self, params: Params, heldout: Mapping[str, NDArray[np.generic]]) -> dict[str, float]:
        """Return the `mean_squared_distance` of the held-out examples to their nearest centres."""
        x = self._inputs(heldout)
        total = sum(float(distances.sum()) for _, _, _, distances in self._nearest(x, *self._centres(params)))
        return {"mean_squared_distance": total / x.shape[0]}

    def predict(self, params: Params, arrays: Mapping[str, NDArray[np.generic]]) -> NDArray[np.int64]:
        """Return the nearest cluster of each example, shape (n,), from 0; raise ValueError if the inputs do not fit."""
        x = self._inputs(arrays)
        clusters = np.empty(x.shape[0], np.int64)
        for at, _, nearest, _ in self._nearest(x, *self._centres(params)):
            clusters[at] = nearest
        return clusters

    def _inputs(self, arrays: Mapping[str, NDArray[np.generic]]) -> F32 | Csr:
        x = inputs(arrays)
        if len(x.shape) != 2 or x.shape[1] != self.n_inputs:
            raise ValueError(f"x {x.shape}: wanted (n, {self.n_inputs})")
        return x

    def _draw_centres(self, data: KMeansData) -> Arrays:
        """Return the first centres that this partition has to draw.

        The partition with the first row draws all, or as many as it has rows. Each remaining cluster i begins as row i
        of the training set, in whichever partition that is; the order of the rows is random.
        """
        low, high = data.first, min(data.rows.stop, self.k)
        if low >= high:
            return {}
        if low == 0:
            sample = _dense(data.x[: max(_SAMPLE_PER_CENTRE * self.k, _LEAST_SAMPLE)])
            found = sample[spread_out(sample, high, np.random.default_rng([self.init_seed, 20070107]))]
        else:
            found = _dense(data.x[: high - low])
        centres, counts = np.zeros((self.k, self.n_inputs)), np.zeros((self.k, 2), np.int64)
        centres[low:high], counts[low:high, 1] = found, 1
        return {"centres": centres, "counts": counts}

    def _centres(self, params: Params) -> tuple[F64, NDArray[np.bool_]]:
        """Return the centres, shape (k, n_inputs), and which of them exist, shape (k,).

        A cluster without examples keeps its centre; it may get examples again when the other centres have moved.
        """
        counts = np.asarray(params["counts"], np.int64)
        held = counts[:, :1]
        means = np.asarray(params["sums"], np.float64) / np.maximum(held, 1)
        return np.where(held > 0, means, params["centres"]).astype(np.float64), counts[:, 1] > 0

    def _nearest(
        self, x: F32 | Csr, centres: F64, drawn: NDArray[np.bool_]
    ) -> Iterator[tuple[slice, F64, NDArray[np.int32], F64]]:
        """Yield, block by block: the rows, their inputs, the nearest centre of each, and the squared distance to it."""
        offsets = np.where(drawn, np.einsum("ij,ij->i", centres, centres), np.inf)
        height = max(1, min(_BLOCK, _MOST_NUMBERS // max(self.n_inputs, self.k)))
        for low in range(0, x.shape[0], height):
            block = _dense(x[low : low + height])
            scores = block @ (-2.0 * centres.T)
            scores += offsets
            nearest = scores.argmin(axis=1).astype(np.int32)
            distances = scores[np.arange(len(block)), nearest] + np.einsum("ij,ij->i", block, block)
            yield slice(low, low + len(block)), block, nearest, np.maximum(distances, 0.0)

    def _spread(self, x: F32 | Csr) -> float:
        """Return the squared distances of a partition's examples to their mean, summed."""
        total, squares = np.zeros(self.n_inputs), 0.0
        height = max(1, min(_BLOCK, _MOST_NUMBERS // self.n_inputs))
        for low in range(0, x.shape[0], height):
            block = _dense(x[low : low + height])
            total += block.sum(axis=0)
            squares += float(np.einsum("ij,ij->", block, block))
        spread: float = squares - float(np.square(total).sum()) / max(1, x.shape[0])
        return max(0.0, spread)


def _dense(x: F32 | Csr) -> F64:
    return np.ascontiguousarray(x.dense() if isinstance(x, Csr) else x, np.float64)
