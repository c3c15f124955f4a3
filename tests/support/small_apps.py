"""Applications with very short trainings, whose models reveal a missing or duplicate update."""

from __future__ import annotations

from typing import Any

import numpy as np

from proteus_spot.psengine.apps.base import Parameters, Work
from proteus_spot.psengine.config import Adam, Momentum, Nesterov, Sgd, TableSpec

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
            TableSpec("shift", 9, 3, rule=Nesterov(0.7, 0.9)),
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
        out = np.tanh(x @ (params["weights"] + params["shift"]) + params["bias"]).astype(np.float32) - np.float32(0.3)
        updates = {
            "weights": x.T @ out * (np.float32(0.1) + params["scale"].sum()),
            "scale": params["scale"] * np.float32(0.1 * out.mean()),
            "shift": (x.T @ out - params["shift"]) * np.float32(0.01),
            "seen": np.ones((1, 1), np.int64),
        }
        if clock % 4:  # now and then no task names this table, and its velocity stays
            updates["bias"] = out.sum(axis=0, keepdims=True, dtype=np.float64)
        return Work(updates, float((out**2).sum()), len(x))

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        assert set(params) == {"weights", "bias", "scale", "shift", "seen"}, (
            "no rule's memory is shown to the application"
        )
        return {}


class Walk:
    """Partitions with state, general ones: each walks over rows of a table that its state and its dice name."""

    ROWS = 11

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("visits", self.ROWS, 2), TableSpec("total", 1, 1, "float64"))

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((rows[1] - rows[0], table.n_cols))

    def prepare(self, arrays: Any) -> int:
        return int(arrays["x"])

    def executor(self, data: int, partition: int, n_partitions: int) -> WalkExecutor:
        assert (partition, n_partitions) == (data, PARTITIONS)
        return WalkExecutor(partition, self.ROWS)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


class WalkExecutor:
    """It knows where it is and what it has seen; it reads its next row when it knows it."""

    def __init__(self, partition: int, n_rows: int) -> None:
        self._at, self._n_rows = partition, n_rows
        self._seen = np.zeros(3, np.float32)

    def reads(self, args: Any, group: int) -> dict[str, None]:
        return {"total": None}

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        total = params.get("total")
        for _ in range(2):
            self._at = int(self._at + rng.integers(1, self._n_rows) + 100 * abs(self._seen[0])) % self._n_rows
            row = np.array([self._at])
            found = params.get("visits", row)
            self._seen[:2] = np.tanh(self._seen[:2] + found[0])
            self._seen[2] += np.float32(params.group)
            params.add("visits", np.float32(0.1) * self._seen[None, :2] - np.float32(0.2) * found, row)
        params.add("total", np.full((1, 1), 1e-3 * float(self._seen.sum()) - 0.1 * float(total[0, 0])))
        return self._at, float(self._seen[0]), 1

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"at": np.array([self._at]), "seen": self._seen.copy()}

    def restore(self, state: Any) -> None:
        self._at, self._seen = int(state["at"][0]), state["seen"].copy()
