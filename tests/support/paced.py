"""An application whose clocks last, and cost the machine next to nothing: for jobs that others are tested on."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from psengine.apps.base import Work
from psengine.model import TableSpec

#: Real seconds that a micro-task takes; it stands for a kernel, and waits for nothing.
_KERNEL_S = 0.01


class Paced:
    """Counts the examples it has seen."""

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the one table."""
        return (TableSpec("seen", 8, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        """Return zeros."""
        return np.zeros((rows[1] - rows[0], table.n_cols))

    def prepare(self, arrays: Mapping[str, Any]) -> int:
        """Return the number of examples."""
        return len(arrays["y"])

    def run(self, data: int, params: Mapping[str, Any], clock: int) -> Work:
        """Take its time, and count."""
        time.sleep(_KERNEL_S)
        return Work({"seen": np.full((8, 1), float(data))}, data / clock, data)

    def evaluate(self, params: Mapping[str, Any], heldout: Mapping[str, Any]) -> dict[str, float]:
        """Return how many examples it has seen."""
        return {"seen": float(params["seen"][0, 0])}
