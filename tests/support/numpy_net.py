"""A net in NumPy, whose model reveals a missing or doubled step; with it the core is tested without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proteus_spot.nets import Nesterov, Net
from proteus_spot.nets.layout import ArrayLayout, Flat, NamedArray

PARTITIONS, EXAMPLES, INPUTS = 5, 7, 300


class Small(Net):
    """Regression by gradient descent with momentum; a mean of the inputs, and a count of the steps."""

    workers, local_steps, warm_steps, batch_size, accumulate = PARTITIONS, 3, 4, 2, 2
    outer = Nesterov(0.8, 0.5)

    def trainer(self) -> Trainer:
        return Trainer(self)


class Plain(Net):
    """Its settings are the defaults."""

    def trainer(self) -> Trainer:
        return Trainer(self)


class Forgetful(Small):
    """Likewise; the momentum begins anew in each clock."""

    moments = "reset"


class Rounded(Small):
    """Likewise; changes are rounded."""

    pushes = "bf16"


class Ill(Small):
    """Likewise; the loss of some workers is no number in some steps."""

    #: ((worker, step), ...).
    ill: tuple[tuple[int, int], ...] = ((1, 2), (0, 3), (2, 3), (4, 8), (0, 11), (3, 11))
    nan = "skip"


class Trainer:
    """Its step depends on every bit of what was read, on the seed, and on what the momentum remembers."""

    def __init__(self, net: Small) -> None:
        self._net = net
        self.layout = ArrayLayout(
            [
                NamedArray("w", "parameters", (INPUTS,)),
                NamedArray("mean", "buffers", (3, 5)),
                NamedArray("steps", "counts", (), "int64"),
            ]
        )

    def first(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self._net.job_seed)
        w = rng.standard_normal(INPUTS, dtype=np.float32)
        return {"w": w, "mean": np.full((3, 5), 0.1, np.float32), "steps": np.zeros((), np.int64)}

    def count(self, data: Any) -> int:
        return EXAMPLES

    def begin(self, tables: Mapping[str, Any], moments: Mapping[str, Any], data: Any, seed: int) -> None:
        self._now = {entry.name: np.array(array) for entry, array in self.layout.named(tables)}
        self._velocity = np.array(moments["velocity"]) if moments else np.zeros(INPUTS, np.float32)
        self._number, self._dice = int(data["x"]), np.random.default_rng(seed)

    def step(self, number: int, batches: Sequence[np.ndarray]) -> float:
        loss, gradient = self._go_back(number, batches)
        self._step(gradient)
        return loss

    def step_by(self, number: int, gradients: Mapping[str, np.ndarray]) -> None:
        self._step(gradients["gradients"].reshape(-1)[:INPUTS])

    def gradients(self, number: int, batches: Sequence[np.ndarray]) -> tuple[float, Flat]:
        loss, gradient = self._go_back(number, batches)
        (table,) = self.layout.gradients
        rows = np.zeros((table.n_rows, table.n_cols), table.dtype)
        rows.reshape(-1)[:INPUTS] = gradient
        return loss, {table.name: rows}

    def _step(self, gradient: np.ndarray) -> None:
        self._velocity = np.float32(0.5) * self._velocity - np.float32(0.05) * gradient
        self._now["w"] += self._velocity

    def _go_back(self, number: int, batches: Sequence[np.ndarray]) -> tuple[float, np.ndarray]:
        loss, gradient = 0.0, np.zeros(INPUTS, np.float32)
        for rows in batches:
            rng = np.random.default_rng([self._number, *rows.tolist()])
            x = rng.standard_normal((len(rows), INPUTS), dtype=np.float32)
            x += self._dice.standard_normal(dtype=np.float32) * np.float32(0.01)
            error = np.tanh(x @ self._now["w"] / np.float32(17)) - np.float32(0.3)
            loss += float((error**2).mean())
            gradient += error @ x
        if (self._number, number) in getattr(self._net, "ill", ()):
            loss, gradient = float("nan"), gradient * np.float32("nan")
        self._now["mean"] += np.float32(0.1) * (x.mean() - self._now["mean"])
        self._now["steps"] += 1
        return loss / len(batches), gradient

    def end(self) -> tuple[Flat, dict[str, np.ndarray]]:
        return self.layout.flat(self._now), {"velocity": self._velocity.copy()}

    def evaluate(self, tables: Any, heldout: Any) -> dict[str, float]:
        return {"norm": float(np.linalg.norm(tables["parameters"]))}

    def predict(self, tables: Any, arrays: Any) -> np.ndarray:
        return np.asarray(arrays["x"]) * 0

    def files(self, tables: Any) -> dict[str, bytes]:
        return {f"{name}.bin": array.tobytes() for name, array in tables.items()}

    def of_files(self, files: Mapping[str, bytes]) -> Flat:
        raise NotImplementedError
