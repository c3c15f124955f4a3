"""Benchmark `train-mf`: the `mf` kernel beside libmf, in seconds of two threads to the same held-out error.

The peer is optional: `pip install libmf`. That wheel is built without vector instructions; if `LIBMF_OBJ` names a
library built from its sources with them (`g++ -O3 -march=native -DUSEAVX`), which its Python binding supports, the
comparison is with that. The setup of each side before the first pass is not counted.

The application's kernel runs in the bare loop of `psengine.single_process`, two micro-tasks at a time; `train` does the
same through the engine.
"""

import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.infra.datasets.formats.ratings_text import Ratings
from proteus_spot.infra.datasets.ratings import RatingSet, divided, generated_ratings
from proteus_spot.psengine.apps.mf.app import MatrixFactorization, Strip
from proteus_spot.psengine.single_process import initial
from proteus_spot.psengine.tables.sharding import Arrays

#: Half the users and half the ratings of the Netflix prize, and as many items.
USERS, ITEMS, RATINGS = 240_094, 17_770, 50_240_253
#: Must differ from the split's seed: the same permutation twice would put the most active users into one partition.
_SEED = 1
RANK, THREADS = 32, 2
#: Passes and steps of the peer that are tried, the mark relative to its best error, and the maximum of our passes.
_PASSES, _STEPS, _NEARLY = (3, 4, 5, 6, 8, 10), (0.2, 0.3), 1.005
_MOST_PASSES = 50
_ROUNDS = 3
PENALTY = 0.05


def run(scratch: Path, n_ratings: int = RATINGS) -> list[Figure]:
    """Measure; the sides alternate. No figures if libmf is not installed."""
    if importlib.util.find_spec("libmf") is None:
        print("train-mf: skipped: needs libmf; pip install libmf")
        return []
    data = generated(n_ratings)
    peer = Peer(data)
    mark, passes, step = mark_of(peer)
    theirs, ours, clocks = [], [], []
    for _ in range(_ROUNDS):
        theirs.append(peer.seconds(step, passes))
        took, taken = reached(data, mark)
        ours.append(took)
        clocks.append(taken)
    rows = f"{data.rows / 1e6:.0f} M ratings, rank {RANK}"
    note = f"mark {mark:.4f}: {clocks[0]} passes against {passes} (its step {step:g}, the best of {len(_STEPS)})"
    library = "vectorised" if "LIBMF_OBJ" in os.environ else "as pip installs it"
    return [figure("train-mf", f"mf to one error, {rows}", "s", ours, theirs, f"libmf, 2 threads, {library}", note)]


def mark_of(peer: "Peer") -> tuple[float, int, float]:
    """Return the error that both must reach, and the passes and the step with which the peer does."""
    # The mark is the peer's least error plus a margin, which saves it many passes; of its steps the one that needs the
    # fewest passes counts. Its two threads race, so no two of its fits are equal.
    tried = {(passes, step): peer.error(step, passes) for passes in _PASSES for step in _STEPS}
    mark = min(tried.values()) * _NEARLY
    passes, step = min(fit for fit, error in tried.items() if error <= mark)
    return mark, passes, step


def generated(n_ratings: int) -> RatingSet:
    users, items, values = generated_ratings(USERS, ITEMS, n_ratings, _SEED, rank=12)
    made = Ratings(users, items, values, np.arange(USERS), np.arange(ITEMS), lambda row: f"rating {row}")
    return divided("generated", made, THREADS)


def reached(data: RatingSet, mark: float) -> tuple[float, int]:
    """Return the seconds and the passes until the held-out error is at the mark; evaluations are not counted."""
    sizes: dict[str, Any] = {name: size for name, size in data.sizes.items() if name != "n_examples"}
    app = MatrixFactorization(**sizes, rank=RANK, regularisation=PENALTY)
    strips = [app.prepare(part) for part in data.parts(0)]
    tables, heldout, took = initial(app, 0), data.heldout(), 0.0
    with ThreadPoolExecutor(THREADS) as threads:
        for number in range(1, _MOST_PASSES + 1):
            began = perf_counter()
            for clock in range((number - 1) * THREADS + 1, number * THREADS + 1):
                _clock(threads, app, strips, tables, clock)
            took += perf_counter() - began
            if app.evaluate(tables, heldout)["rmse"] <= mark:
                return took, number
    raise RuntimeError(f"the error never fell to {mark:.4f}")


def _clock(
    threads: ThreadPoolExecutor, app: MatrixFactorization, strips: Sequence[Strip], tables: Arrays, clock: int
) -> None:
    """Run the micro-tasks of a clock concurrently, as nodes do, and add their updates, as servers do."""

    def work(strip: Strip) -> None:
        wanted = app.rows(strip, clock)
        updates = app.run(strip, {name: tables[name][rows] for name, rows in wanted.items()}, clock).updates
        for name, rows in wanted.items():
            changed: NDArray[Any] = tables[name]
            changed[rows] += updates[name]  # micro-tasks of a clock have disjoint rows

    list(threads.map(work, strips))


class Peer:
    """libmf on the training ratings less their mean, which it does not subtract itself."""

    def __init__(self, data: RatingSet) -> None:
        import libmf.mf

        self._library = libmf.mf
        train, held = ~data.held, data.heldout()
        self._mean = np.float32(data.sizes["rating_mean"])
        found = data.ratings
        self._ratings = np.column_stack([found.users[train], found.items[train], found.values[train] - self._mean])
        self._ratings = np.ascontiguousarray(self._ratings, np.float32)
        self._users, self._items, self._values = held["users"], held["items"], held["values"]

    def seconds(self, step: float, passes: int) -> float:
        """Return the seconds of `passes`: a fit of one more, less a fit of one."""
        one = self._fit(step, 1)[0]
        return self._fit(step, passes + 1)[0] - one

    def error(self, step: float, passes: int) -> float:
        """Return the held-out error after `passes`."""
        return self._error(self._fit(step, passes)[1])

    def _fit(self, step: float, passes: int) -> tuple[float, Any]:
        model = self._library.MF(
            k=RANK, nr_threads=THREADS, nr_bins=26, nr_iters=passes, eta=step, lambda_p1=0.0, lambda_q1=0.0,
            lambda_p2=PENALTY, lambda_q2=PENALTY, quiet=True,
        )  # fmt: skip
        began = perf_counter()
        model.fit(self._ratings)
        return perf_counter() - began, model

    def _error(self, model: Any) -> float:
        left, right = model.p_factors(), model.q_factors()
        predicted: NDArray[Any] = np.empty(len(self._values), np.float32)
        for low in range(0, len(predicted), 1 << 16):
            pairs = slice(low, low + (1 << 16))
            predicted[pairs] = np.einsum("nk,nk->n", left[self._users[pairs]], right[self._items[pairs]])
        return float(np.sqrt(np.mean((predicted + self._mean - self._values) ** 2, dtype=np.float64)))
