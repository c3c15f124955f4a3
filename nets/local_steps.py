"""The local steps of one worker in one clock: what a task of a net is, in whatever process it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.nets.layout import PARAMETERS, Flat
from proteus_spot.nets.sampling import Walk
from proteus_spot.nets.settings import NetSettings
from proteus_spot.nets.trainer import Arrays, Trainer
from proteus_spot.psengine.rpc.narrowing import rounded
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
    gradients : mapping
        The mean gradients of the step before the first, which is still to be taken; empty: there is none.
    seed : int
        Seeds what is random in the steps.
    clock, first, count : int
        Number of the clock and of its first step, and how many steps it has.
    warm : bool
        Whether the worker pushes the gradients of its one step, which all take in the next clock.
    """

    partition: int
    tables: Arrays
    moments: Arrays
    gradients: Arrays
    seed: int
    clock: int
    first: int
    count: int
    warm: bool = False


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
    skipped : str
        Why the worker is missing in the means of this clock; empty: it is not.
    """

    shares: dict[str, NDArray[Any]]
    moments: Arrays
    losses: list[float]
    skipped: str = ""

    def with_moments_apart(self) -> Trained:
        """Return it with moments that do not hold the memory of the shares: they live longer."""
        return replace(self, moments={name: array.copy() for name, array in self.moments.items()})


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
        if errand.gradients:
            self.trainer.step_by(errand.first - 1, errand.gradients)
        losses: list[float] = []
        gradients: Flat = {}
        for step in range(errand.first, errand.first + errand.count):
            batches = np.split(walk.take(step * each_step, each_step), accumulate)
            if errand.warm:
                loss, gradients = self.trainer.gradients(step, batches)
            else:
                loss = self.trainer.step(step, batches)
            losses.append(loss)
            if not math.isfinite(loss):
                return self._without(errand, f"step {step}: the loss is {loss}")
        after, moments = self.trainer.end()
        shares = {name: self._of_one(rows) for name, rows in gradients.items()}
        for name, rows in after.items():
            share = self._share(name, errand, rows)
            if share is not None:
                shares[name] = share
        if not all(np.isfinite(share.sum()) for share in shares.values()):
            return self._without(errand, f"step {step}: the {'gradient' if errand.warm else 'change'} is not finite")
        return Trained(shares, moments if errand.warm or self._net.moments == "keep" else {}, losses)

    def _without(self, errand: Errand, why: str) -> Trained:
        """Return what comes of a task whose worker is missing in the means."""
        where = f"worker {errand.partition}, clock {errand.clock}, {why}"
        if self._net.nan == "fail":
            raise WrongValue(f"{where}; want a lower rate, clip_norm, or nan = 'skip'")
        where += "; the mean of the others is taken"
        if not errand.warm:
            return Trained({}, errand.moments, [], where)
        after, moments = self.trainer.end()  # the step by the mean gradients is one of all workers
        moved = {name: self._share(name, errand, rows) for name, rows in after.items() if name.startswith(PARAMETERS)}
        return Trained({name: share for name, share in moved.items() if share is not None}, moments, [], where)

    def _share(self, table: str, errand: Errand, after: NDArray[Any]) -> NDArray[Any] | None:
        """Return what a worker adds to a table; None if that is nothing."""
        change: NDArray[Any] = after - errand.tables[table]
        is_parameters = table.startswith(PARAMETERS)
        if change.dtype.kind == "i" or (errand.warm and is_parameters):  # it is the same of all workers
            return change if errand.partition == 0 and change.any() else None
        return self._of_one(change) if is_parameters or change.any() else None

    def _of_one(self, change: NDArray[Any]) -> NDArray[Any]:
        """Return the share of one worker in a mean; `change` may be written to."""
        np.divide(change, change.dtype.type(self._net.workers), out=change)
        return rounded(change) if self._net.pushes == "bf16" and change.dtype == np.float32 else change
