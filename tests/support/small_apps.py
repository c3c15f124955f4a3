"""Applications with very short trainings, whose models reveal a missing or duplicate update."""

from __future__ import annotations

from typing import Any

import numpy as np

from psengine.apps.base import Work
from psengine.config import TableSpec

PARTITIONS, TOKENS, TOPICS = 5, 6, 4


class Descent:
    """Like `mlr`: float32 steps that depend on every bit of what was read."""

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("weights", 9, 3),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], table.n_cols), np.float32)

    def prepare(self, arrays: Any) -> np.ndarray:
        return np.random.default_rng(int(arrays["x"])).standard_normal((4, 9)).astype(np.float32)

    def run(self, data: np.ndarray, params: Any, clock: int) -> Work:
        out = np.tanh(data @ params["weights"]) - np.float32(0.3)
        return Work({"weights": np.float32(-0.02) * (data.T @ out)}, float((out**2).sum()), len(data))

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


class Tally:
    """Like `lda`: each partition's tokens have topics in rows of its own, and are counted in a table of all."""

    def tables(self) -> tuple[TableSpec, ...]:
        return (
            TableSpec("topics", TOPICS, 1, "int64"),
            TableSpec("assigned", PARTITIONS * TOKENS, 1, "int32", own=True),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], 1), table.dtype)

    def prepare(self, arrays: Any) -> int:
        return int(arrays["x"])

    def rows(self, data: int, clock: int) -> dict[str, slice]:
        return {"assigned": slice(data * TOKENS, (data + 1) * TOKENS)}

    def run(self, data: int, params: Any, clock: int) -> Work:
        old, counts = params["assigned"][:, 0], params["topics"][:, 0]
        dice = np.random.default_rng([data, clock, *np.maximum(counts, 0).tolist()])
        new = dice.integers(1, TOPICS + 1, TOKENS).astype(np.int32)
        change = np.bincount(new - 1, minlength=TOPICS) - np.bincount(old[old > 0] - 1, minlength=TOPICS)
        return Work({"assigned": (new - old)[:, None], "topics": change[:, None].astype(np.int64)}, 0.0, TOKENS)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}
