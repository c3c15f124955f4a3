"""The best of the models that were evaluated is kept, where the application says so."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.state import ControllerState
from proteus_spot.psengine.protocol.instructions import Evaluate
from proteus_spot.psengine.rpc.transport import Transfers
from proteus_spot.psengine.shell.callbacks import BestModel, ControllerCallbacks
from proteus_spot.psengine.shell.evaluator import ApplicationRaised
from proteus_spot.psengine.shell.state_saving import BestKeeper, StateSaver
from tests.support import numpy_net
from tests.support.shell_nodes import Nodes

SMALL = f"{numpy_net.__name__}:Small"


class Kept:
    """A store of one model."""

    def __init__(self) -> None:
        self.best: BestModel | None = None

    def keep(self, config: JobConfig, best: BestModel) -> None:
        self.best = best

    def callbacks(self) -> ControllerCallbacks:
        def no(*args: Any) -> Any:
            raise NotImplementedError

        return ControllerCallbacks(no, no, no, no, no, no, no, keep_best=self.keep, find_best=lambda config: self.best)

    def keeper(self) -> BestKeeper:
        return BestKeeper(self.callbacks())


def config(keep: str) -> JobConfig:
    return JobConfig("job", SMALL, {"keep": keep}, n_partitions=5, clocks=9)


def tables(clock: int) -> dict[str, Any]:
    return {"w": np.full((1, 1), clock)}


async def considered(keeper: BestKeeper, losses: dict[int, float | None], keep: str = "best") -> None:
    for clock, loss in losses.items():
        await keeper.consider(config(keep), clock, {"loss": loss}, tables(clock))


def test_the_lowest_loss_is_kept_also_by_the_next_controller() -> None:
    async def story() -> None:
        kept = Kept()
        await considered(kept.keeper(), {2: 3.0, 4: 1.0, 6: 2.0, 8: None})
        assert kept.best == BestModel(4, {"loss": 1.0}, tables(4))
        after = kept.keeper()
        await considered(after, {6: 2.0, 10: 1.5})
        assert kept.best.clock == 4
        assert await after.better(config("best"), {"loss": 1.5}) == kept.best
        assert await after.better(config("best"), {"loss": 0.5}) is None, "the last model is better"
        await considered(after, {12: 0.9})
        assert kept.best.clock == 12

    asyncio.run(story())


def test_the_clock_of_the_kept_model_is_one_of_the_job_also_where_it_has_several_groups() -> None:
    async def story() -> None:
        kept, history = Kept(), ControllerState().history
        saver = StateSaver(Transfers(Nodes()), kept.callbacks(), history, lambda event: None)
        await saver._keep_if_best(Evaluate(config("best"), 8, 2, (), 1), {"loss": 1.0}, tables(2))
        assert kept.best is not None
        assert kept.best.clock == 2

    asyncio.run(story())


def test_without_the_setting_the_last_model_is_saved() -> None:
    async def story() -> None:
        kept = Kept()
        await considered(kept.keeper(), {2: 3.0}, "last")
        assert kept.best is None
        assert await kept.keeper().better(config("last"), {"loss": 9.0}) is None

    asyncio.run(story())


def test_a_figure_that_is_missing_is_named() -> None:
    with pytest.raises(ApplicationRaised, match="keep is 'best', and evaluate returns no figure 'loss'"):
        asyncio.run(Kept().keeper().better(config("best"), {"accuracy": 1.0}))
