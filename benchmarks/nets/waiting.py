"""A net whose steps take a given time, and compute nothing: what a clock takes beyond that is the engine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from proteus_spot.infra.clock import SystemClock
from proteus_spot.nets import Net
from proteus_spot.nets.layout import ArrayLayout, Flat, NamedArray
from proteus_spot.nets.trainer import Arrays

#: The saved model: its rows.
MODEL_FILE = "parameters.bin"


class WaitingNet(Net):
    """Its steps wait, and add a little to each parameter."""

    workers, local_steps, warm_steps, in_processes = 4, 5, 0, True
    moments: Literal["keep", "reset"] = "reset"
    size, step_s = 1_000_000, 0.25
    #: Arrays of the size of the model that its optimiser keeps.
    kept = 2

    def trainer(self) -> _Waits:
        return _Waits(self)


class _Waits:
    def __init__(self, net: WaitingNet) -> None:
        self._net, self._clock = net, SystemClock()
        self.layout = ArrayLayout([NamedArray("w", "parameters", (net.size,))])

    def first(self) -> Mapping[str, Any]:
        return {"w": np.zeros(self._net.size, np.float32)}

    def count(self, data: Arrays) -> int:
        return len(data["x"])

    def begin(self, tables: Arrays, moments: Arrays, data: Arrays, seed: int) -> None:
        self._tables = tables
        self._ends_s = self._clock.now_s()

    def step(self, number: int, batches: Sequence[Any]) -> float:
        self._ends_s += self._net.step_s
        self._clock.wait_until(self._ends_s)
        return 1.0

    def step_by(self, number: int, gradients: Arrays) -> None:
        raise NotImplementedError

    def gradients(self, number: int, batches: Sequence[Any]) -> tuple[float, Flat]:
        raise NotImplementedError

    def end(self) -> tuple[Flat, dict[str, Any]]:
        after = {name: rows + np.float32(1e-3) for name, rows in self._tables.items()}
        if self._net.moments == "reset":
            return after, {}
        return after, {f"{number}": np.zeros(self._net.size, np.float32) for number in range(self._net.kept)}

    def evaluate(self, tables: Arrays, heldout: Arrays) -> dict[str, Any]:
        return {"mean": float(tables["parameters"].mean())}

    def predict(self, tables: Arrays, arrays: Arrays) -> Any:
        return arrays["x"]

    def files(self, tables: Arrays) -> Mapping[str, bytes]:
        return {MODEL_FILE: tables["parameters"].tobytes()}

    def of_files(self, files: Mapping[str, bytes]) -> Flat:
        raise NotImplementedError
