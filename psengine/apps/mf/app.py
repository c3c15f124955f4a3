"""Matrix factorisation by stochastic gradient descent, the items rotated among the partitions.

The model of a rating of item i by user u is mean + sd · ⟨p_u, q_i⟩. With P partitions, each a run of users, the items
are cut into P blocks; in clock c partition p visits its ratings of block (p + c) mod P. So no two tasks of a
clock write the same row, and P clocks are a pass over all ratings: under BSP the model equals, except for rounding,
that of one thread that visits the blocks one after the other.

Source: the rotation is the stratified descent of Gemulla et al., KDD 2011, the example of model scheduling in Litz
(2017), 2.3; the step of each row's own is that of Chin et al., ACM TIST 2015 (libmf).
Differs: one step a row, where libmf has one for the first eight factors and another for the rest and withholds those in
the first pass; the mean is taken away first; factors start around zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps import kernel_cache as kernels
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.row_sets import RowSet

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

SCHEDULES = ("adaptive", "decay")
#: Users and items of a tile, whose rows (at rank 32 some 300 kB) stay in a core's L2 cache while it is processed.
_TILE_USERS, _TILE_ITEMS = 1024, 1024
_CHUNK = 1 << 16
_KERNELS = "proteus_spot.psengine.apps.mf.kernels"


@dataclass(frozen=True, slots=True)
class Strip:
    """The ratings of one partition by block of items, each block in the order in which its ratings are visited.

    Attributes
    ----------
    partition : int
    users : (first, last + 1)
        Users of the partition.
    item_bounds : int64 of shape (blocks + 1,)
        First item of each block, and the end of the last block.
    starts : int64 of shape (blocks + 1,)
        First rating of each block, and the end of the last block.
    user, item : int32 of shape (ratings,)
        User counted from the first of the partition, item from the first of the block.
    value : float32 of shape (ratings,)
        Standardised ratings.
    """

    partition: int
    users: tuple[int, int]
    item_bounds: NDArray[np.int64]
    starts: NDArray[np.int64]
    user: I32
    item: I32
    value: F32

    def block(self, clock: int) -> int:
        """Return the block of items of a clock."""
        return (self.partition + clock) % (len(self.item_bounds) - 1)

    def items_of(self, block: int) -> slice:
        """Return the items of a block."""
        return slice(int(self.item_bounds[block]), int(self.item_bounds[block + 1]))


class MatrixFactorization:
    """Factors of users and items, learned from ratings.

    Parameters
    ----------
    n_users, n_items, n_partitions, rating_mean, rating_sd
        Sizes and moments of the training set, given by `infra.datasets.ratings`.
    rank : int
        Number of factors of a user, and of an item.
    step : float
        Initial step size.
    regularisation : float
        Weight of the squared factors, at each visit.
    schedule : {"adaptive", "decay"}
        `adaptive`: each row's step falls with the root of the sum of its squared gradients. `decay`: the step of a
        pass, counted from 0, is ``step / (1 + decay · pass)``, so that `decay` 0 is a constant step.
    decay : float
        See `schedule`.
    spread : float
        Initial standard deviation of the inner product of two rows, in standard deviations of the ratings.
    """

    predicts = "rating"

    def __init__(
        self,
        *,
        n_users: int,
        n_items: int,
        n_partitions: int,
        rating_mean: float = 0.0,
        rating_sd: float = 1.0,
        rank: int = 32,
        step: float = 0.2,
        regularisation: float = 0.05,
        schedule: str = "adaptive",
        decay: float = 0.0,
        spread: float = 0.02,
    ) -> None:
        for name, value, low in (("rank", rank, 1), ("n_partitions", n_partitions, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"{name} is {value!r}; want a whole number from {low}")
        for name, number in (("step", step), ("rating_sd", rating_sd), ("spread", spread)):
            if not (_is_number(number) and number > 0):
                raise ValueError(f"{name} is {number!r}; want a number above 0")
        for name, number in (("regularisation", regularisation), ("decay", decay)):
            if not (_is_number(number) and number >= 0):
                raise ValueError(f"{name} is {number!r}; want a number from 0")
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule is {schedule!r}; want one of {', '.join(SCHEDULES)}")
        self.n_users, self.n_items, self.n_partitions = n_users, n_items, n_partitions
        self.rating_mean, self.rating_sd = rating_mean, rating_sd
        self.rank, self.step, self.regularisation = rank, step, regularisation
        self.schedule, self.decay, self.spread = schedule, decay, spread

    @property
    def clocks_per_pass(self) -> int:
        """Number of clocks in which each partition visits all blocks of items."""
        return self.n_partitions

    def tables(self) -> tuple[TableSpec, ...]:
        """Return `users` and `items`: the factors of each, and its sum of squared gradients (1 at the start)."""
        width = self.rank + 1
        return TableSpec("users", self.n_users, width, own=True), TableSpec("items", self.n_items, width)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> F32:
        """Return normal factors around zero."""
        values = np.ones((rows[1] - rows[0], table.n_cols), np.float32)
        # The product of two such numbers has deviation spread / √rank, and rank of them are added.
        deviation = np.float32(np.sqrt(self.spread / np.sqrt(self.rank)))
        values[:, :-1] = rng.standard_normal((len(values), self.rank), np.float32) * deviation
        return values

    def prepare(self, arrays: Mapping[str, NDArray[Any]]) -> Strip:
        """Sort the ratings of a partition by block and tile, at random within a tile.

        At random, because successive ratings that share a row wait for each other, and learn from a stale state of the
        rest; by tile, because cached rows cost a fraction of others.

        Parameters
        ----------
        arrays : mapping
            `users`, `items` (int, shape (ratings,)) and `values` (float, shape (ratings,), in points); `partition`
            (1,); `user_bounds` and `item_bounds` (partitions + 1,), the first user of each partition and item of each
            block.

        Raises
        ------
        ValueError
            If the data are cut into another number of parts.
        """
        kernels.load(_KERNELS)  # compiled here, not during a clock
        partition, bounds = int(arrays["partition"][0]), arrays["item_bounds"]
        if len(bounds) - 1 != self.n_partitions:
            raise ValueError(f"n_partitions is {self.n_partitions}, and the data are cut into {len(bounds) - 1} parts")
        low, high = (int(bound) for bound in arrays["user_bounds"][partition : partition + 2])
        order = np.random.default_rng(partition).permutation(len(arrays["values"]))
        user = arrays["users"][order] - np.int32(low)
        block_of = np.repeat(np.arange(self.n_partitions, dtype=np.int32), np.diff(bounds))
        offset = (np.arange(self.n_items) - np.repeat(bounds[:-1], np.diff(bounds))).astype(np.int32)
        item = arrays["items"][order]
        block, item = block_of[item], offset[item]
        tiles = (-(-(high - low) // _TILE_USERS), -(-int(np.diff(bounds).max()) // _TILE_ITEMS))
        tile = (block * tiles[0] + user // _TILE_USERS) * tiles[1] + item // _TILE_ITEMS
        by_tile = _stable_order(tile, self.n_partitions * tiles[0] * tiles[1])
        starts = np.concatenate(([0], np.cumsum(np.bincount(block, minlength=self.n_partitions))))
        value = (arrays["values"][order][by_tile] - np.float32(self.rating_mean)) / np.float32(self.rating_sd)
        return Strip(partition, (low, high), bounds, starts, user[by_tile], item[by_tile], value)

    def rows(self, data: Strip, clock: int) -> dict[str, RowSet]:
        """Return the partition's users, and the clock's block of items."""
        return {"users": slice(*data.users), "items": data.items_of(data.block(clock))}

    def run(self, data: Strip, params: Mapping[str, NDArray[Any]], clock: int) -> Work:
        """Visit each rating of the partition in the clock's block once; the loss is the squared error, in points²."""
        new: dict[str, NDArray[Any]] = {
            name: np.array(params[name], np.float32, order="C") for name in ("users", "items")
        }
        n_pass = (clock - 1) // self.n_partitions
        loss, n_ratings = self.visit(data, data.block(clock), n_pass, new["users"], new["items"])
        for name, rows in new.items():
            rows -= params[name]
        return Work(new, loss, n_ratings)

    def visit(self, data: Strip, block: int, n_pass: int, users: F32, items: F32) -> tuple[float, int]:
        """Visit each rating of a block once; return the sum of the squared errors, in points², and their number.

        Parameters
        ----------
        n_pass : number of the pass, from 0.
        users, items : float32 of shape (rows, rank + 1)
            Rows of the partition's users and of the block's items; changed in place.
        """
        from proteus_spot.psengine.apps.mf import kernels as mf_kernels

        ratings = slice(int(data.starts[block]), int(data.starts[block + 1]))
        kernel, step = mf_kernels.adaptive_steps, self.step
        if self.schedule == "decay":
            kernel, step = mf_kernels.plain_steps, self.step / (1 + self.decay * n_pass)
        loss = kernel(
            data.user[ratings],
            data.item[ratings],
            data.value[ratings],
            users,
            items,
            np.float32(step),
            np.float32(self.regularisation),
        )
        return loss * self.rating_sd**2, ratings.stop - ratings.start

    def predict(self, params: Mapping[str, NDArray[Any]], arrays: Mapping[str, NDArray[Any]]) -> F32:
        """Return the expected rating of each pair of `users` and `items` (indices, shape (pairs,))."""
        users, items = arrays["users"], arrays["items"]
        left, right = params["users"][:, :-1], params["items"][:, :-1]
        inner = np.empty(len(users), np.float32)
        for low in range(0, len(users), _CHUNK):
            pairs = slice(low, low + _CHUNK)
            inner[pairs] = np.einsum("nk,nk->n", left[users[pairs]], right[items[pairs]])
        return np.float32(self.rating_mean) + np.float32(self.rating_sd) * inner

    def evaluate(self, params: Mapping[str, NDArray[Any]], heldout: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the root mean squared error (`rmse`) and the mean absolute error (`mae`), in points."""
        error = np.float64(self.predict(params, heldout)) - heldout["values"]
        return {"rmse": float(np.sqrt(np.mean(error**2))), "mae": float(np.mean(np.abs(error)))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _stable_order(keys: I32, n_keys: int) -> NDArray[np.int64]:
    # NumPy sorts 16-bit keys in linear time, wider ones by merging.
    return np.argsort(keys.astype(np.uint16) if n_keys <= 1 << 16 else keys, kind="stable")
