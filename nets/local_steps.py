"""The local steps of one worker in one clock: what a task of a net is, in whatever process it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.nets.sampling import Walk
from proteus_spot.nets.settings import NetSettings
from proteus_spot.nets.trainer import Arrays, Trainer
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.telemetry.formatting import format_error


@dataclass(frozen=True)
class Errand:
    """A task.

    Attributes
    ----------
    partition : int
        Number of the worker.
    tables, moments : mapping
        The committed model, and the moments of the worker's optimiser.
    seed : int
        Seeds what is random in the steps.
    first, count : int
        Number of the first step, and how many there are.
    """

    partition: int
    tables: Arrays
    moments: Arrays
    seed: int
    first: int
    count: int


@dataclass(frozen=True)
class Trained:
    """What comes of a task.

    Attributes
    ----------
    shares : dict
        What the worker adds to each table that it changes.
    moments : mapping
        Those of the worker's optimiser.
    losses : list of float
        Mean loss of each step.
    """

    shares: dict[str, NDArray[Any]]
    moments: Arrays
    losses: list[float]

    def copied(self) -> Trained:
        """Return it with arrays of its own."""
        arrays = [{name: array.copy() for name, array in each.items()} for each in (self.shares, self.moments)]
        return Trained(arrays[0], arrays[1], self.losses)


class LocalSteps:
    """Takes the local steps of workers, one worker after the other.

    Parameters
    ----------
    net : NetSettings
    """

    def __init__(self, net: NetSettings) -> None:
        self._net = net
        self.trainer: Trainer = net.trainer()
        self._walks: dict[int, Walk] = {}

    def take(self, errand: Errand, data: Arrays) -> Trained:
        """Return what comes of a task on the examples of its worker.

        Raises
        ------
        WrongValue
            What the user's code raised or returned, as one line with its place.
        """
        try:
            return self._take(errand, data)
        except WrongValue:
            raise
        except Exception as error:
            kind = type(self._net)
            raise WrongValue(format_error(error, f"{kind.__module__}:{kind.__qualname__}")) from error

    def _take(self, errand: Errand, data: Arrays) -> Trained:
        if errand.partition not in self._walks:
            self._walks[errand.partition] = Walk(self.trainer.count(data), self._net.job_seed, errand.partition)
        walk, accumulate = self._walks[errand.partition], self._net.accumulate
        each_step = self._net.batch_size * accumulate
        self.trainer.begin(errand.tables, errand.moments, data, errand.seed)
        losses = []
        for step in range(errand.first, errand.first + errand.count):
            rows = walk.take(step * each_step, each_step)
            losses.append(self.trainer.step(step, np.split(rows, accumulate)))
        after, moments = self.trainer.end()
        shares = {}
        for name, rows in after.items():
            share = self._share(name, errand.partition, errand.tables[name], rows)
            if share is not None:
                shares[name] = share
        return Trained(shares, moments if self._net.moments == "keep" else {}, losses)

    def _share(self, table: str, partition: int, before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any] | None:
        """Return what a worker adds to a table; None if that is nothing."""
        change: NDArray[Any] = after - before
        if change.dtype.kind == "i":
            return change if partition == 0 and change.any() else None
        if not table.startswith("parameters") and not change.any():
            return None
        np.divide(change, change.dtype.type(self._net.workers), out=change)
        return change
