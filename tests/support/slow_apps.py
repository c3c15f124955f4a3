"""An application with long clocks that cost hardly any processor time, for jobs that other parts are tested on.

A file `HURRY` in the blob store ends the waiting, so that the job can finish.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.mlr import MlrData, MultinomialLogisticRegression
from proteus_spot.psengine.config import TableSpec

HURRY = "hurry"


class Paced:
    """Counts the examples it has seen."""

    #: Real seconds that a task takes; it stands for a kernel, and waits for nothing.
    kernel_s = 0.01

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
        if not _hurried():
            time.sleep(self.kernel_s)
        return Work({"seen": np.full((8, 1), float(data))}, data / clock, data)

    def evaluate(self, params: Mapping[str, Any], heldout: Mapping[str, Any]) -> dict[str, float]:
        """Return how many examples it has seen."""
        return {"seen": float(params["seen"][0, 0])}


class Slow(Paced):
    """Takes so long that a job of some hundred clocks is under way for as long as a test needs it."""

    kernel_s = 0.15


class PacedMlr(MultinomialLogisticRegression):
    """It learns the digits, and leaves the machine most of its time."""

    #: Real seconds that a task takes at least.
    kernel_s = 0.01

    def run(self, data: MlrData, params: Mapping[str, Any], clock: int) -> Work:
        """Take its time, and a step."""
        time.sleep(self.kernel_s)
        return super().run(data, params, clock)


class SlowMlr(PacedMlr):
    """Takes so long that there is time to strike into a training of some hundred clocks on a quick machine, too."""

    kernel_s = 0.025


def _hurried() -> bool:
    """Whether the file is there; the node that we run in was told of its blob store by an option."""
    if "--blob" not in sys.argv:
        return False
    url = sys.argv[sys.argv.index("--blob") + 1]
    return (Path(urlsplit(url).path) / HURRY).exists()
