"""The best of the models that were evaluated, where an application keeps it in place of the last one.

The store has it, so that it survives the controller. A clock that is repeated has the same bits, so a job that goes
back leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.rpc.cancellation import on_thread
from proteus_spot.psengine.shell.callbacks import BestModel, ControllerCallbacks
from proteus_spot.psengine.shell.evaluator import ApplicationRaised
from proteus_spot.psengine.tables.sharding import Arrays

_FIGURE = "loss"


class BestKeeper:
    """Keeps the best model of one job."""

    def __init__(self, callbacks: ControllerCallbacks) -> None:
        self._callbacks = callbacks
        #: The lowest loss that the store has; None: not read yet.
        self._lowest: float | None = None

    async def consider(
        self, config: JobConfig, clock: int, figures: Mapping[str, float | None], arrays: Arrays
    ) -> None:
        """Keep a model if it is the best."""
        if not await on_thread(keeps_best, config):
            return
        if self._lowest is None:
            best = await on_thread(self._callbacks.find_best, config)
            self._lowest = math.inf if best is None else _loss_of(best.figures)
        if _loss_of(figures) < self._lowest:
            await on_thread(self._callbacks.keep_best, config, BestModel(clock, dict(figures), arrays))
            self._lowest = _loss_of(figures)

    async def better(self, config: JobConfig, figures: Mapping[str, float | None]) -> BestModel | None:
        """Return the kept model if it is better than the last one, of which `figures` are.

        Raises
        ------
        ApplicationRaised
            If there is no figure to compare.
        """
        if not await on_thread(keeps_best, config):
            return None
        if _FIGURE not in figures:
            raise ApplicationRaised(f"{config.app}: keep is 'best', and evaluate returns no figure {_FIGURE!r}")
        best: BestModel | None = await on_thread(self._callbacks.find_best, config)
        return best if best is not None and _loss_of(best.figures) < _loss_of(figures) else None


def keeps_best(config: JobConfig) -> bool:
    """Return whether the application of a job keeps its best model. It runs the user's code: call it on a thread."""
    return bool(getattr(resolve(config.app, config.app_params), "keeps_best", False))


def _loss_of(figures: Mapping[str, float | None]) -> float:
    loss = figures.get(_FIGURE)
    return math.inf if loss is None else loss
