"""Applications with very short trainings, whose models reveal a missing or duplicate update."""

from __future__ import annotations

from typing import Any

import numpy as np

from psengine.apps.base import Work
from psengine.config import Adam, Momentum, Sgd, TableSpec

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


class Steered:
    """Its tables have update rules, which depend on every bit of what was summed, and on what they remember."""

    def tables(self) -> tuple[TableSpec, ...]:
        return (
            TableSpec("weights", 9, 3, rule=Adam(0.05)),
            TableSpec("bias", 1, 3, "float64", rule=Momentum(0.02, 0.8)),
            TableSpec("scale", 9, 1, rule=Sgd(0.1)),
            TableSpec("seen", 1, 1, "int64"),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.full((rows[1] - rows[0], table.n_cols), 0.5 if table.name == "scale" else 0.0)

    def prepare(self, arrays: Any) -> tuple[int, np.ndarray]:
        number = int(arrays["x"])
        return number, np.random.default_rng(number).standard_normal((4, 9)).astype(np.float32)

    def rows(self, data: Any, clock: int) -> dict[str, Any]:
        return {"scale": np.flatnonzero(np.random.default_rng([data[0], clock]).random(9) < 0.4)}

    def run(self, data: Any, params: Any, clock: int) -> Work:
        x = data[1]
        out = np.tanh(x @ params["weights"] + params["bias"]).astype(np.float32) - np.float32(0.3)
        updates = {
            "weights": x.T @ out * (np.float32(0.1) + params["scale"].sum()),
            "scale": params["scale"] * np.float32(0.1 * out.mean()),
            "seen": np.ones((1, 1), np.int64),
        }
        if clock % 4:  # now and then no micro-task names this table, and its velocity stays
            updates["bias"] = out.sum(axis=0, keepdims=True, dtype=np.float64)
        return Work(updates, float((out**2).sum()), len(x))

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        assert set(params) == {"weights", "bias", "scale", "seen"}, "no rule's memory is shown to the application"
        return {}
