"""What the core wants of a library of neural networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from proteus_spot.nets.layout import ArrayLayout, Flat

Arrays = Mapping[str, NDArray[Any]]


class Trainer(Protocol):
    """Takes local steps of a net, one worker after the other; it keeps nothing of a worker between two tasks."""

    @property
    def layout(self) -> ArrayLayout:
        """The arrays of the net."""
        ...

    def first(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays at clock 0, by name."""
        ...

    def count(self, data: Arrays) -> int:
        """Return the number of examples that a partition has."""
        ...

    def begin(self, tables: Arrays, moments: Arrays, data: Arrays, seed: int) -> None:
        """Begin a task from committed tables and a worker's moments; `seed` seeds all that is random in it."""
        ...

    def step(self, number: int, batches: Sequence[NDArray[np.int64]]) -> float:
        """Take a local step over batches of examples, whose gradients are accumulated; return the mean loss."""
        ...

    def step_by(self, number: int, gradients: Arrays) -> None:
        """Take a local step with the gradients of these tables; no batch is looked at."""
        ...

    def gradients(self, number: int, batches: Sequence[NDArray[np.int64]]) -> tuple[float, Flat]:
        """Return the mean loss of a step that is not taken, and its gradients as tables."""
        ...

    def end(self) -> tuple[Flat, dict[str, NDArray[Any]]]:
        """End the task; return the tables that it has come to, and the moments of the inner optimiser."""
        ...

    def evaluate(self, tables: Arrays, heldout: Arrays) -> dict[str, Any]:
        """Return figures of merit on held-out data."""
        ...

    def predict(self, tables: Arrays, arrays: Arrays) -> NDArray[Any]:
        """Return a value for each example."""
        ...

    def files(self, tables: Arrays) -> Mapping[str, bytes]:
        """Return the files of the model, by name."""
        ...

    def of_files(self, files: Mapping[str, bytes]) -> Flat:
        """Return the tables of which `files` returned these."""
        ...
