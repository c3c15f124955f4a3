"""Evaluation of models on held-out data, on a thread of the controller's process.

Evaluations run one at a time, so that the application needs the memory of one. The held-out data are read once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.apps.residents import initial_rows, own_tables, shared_tables, whole_own_tables
from proteus_spot.psengine.apps.returned import figures_of, tables_of
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.instructions import Evaluate, ShardOwner
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.rpc.cancellation import on_thread
from proteus_spot.psengine.rpc.transport import Transfers
from proteus_spot.psengine.shell.gathering import marked, states_at
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.telemetry.formatting import format_error

logger = logging.getLogger(__name__)


class ApplicationRaised(Exception):
    """The application's `evaluate` raised: a retry is useless."""


class Evaluator:
    """Evaluates the models of one job.

    Parameters
    ----------
    read_heldout : callable
        Returns the held-out arrays under a data URL; blocks, called on a thread.
    count : callable
        Called with the shards gathered for an evaluation and their owners, and with the states of partitions.
    """

    def __init__(
        self,
        transfers: Transfers,
        read_heldout: Callable[[str], Mapping[str, NDArray[np.generic]]],
        count: Callable[
            [Mapping[int, Arrays], Sequence[ShardOwner], Mapping[int, Arrays], Sequence[StateRef]], Awaitable[None]
        ],
    ) -> None:
        self._transfers, self._read_heldout, self._count = transfers, read_heldout, count
        self._heldout: tuple[str, Mapping[str, NDArray[np.generic]]] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def evaluate(self, instruction: Evaluate) -> tuple[dict[str, float | None], Arrays] | None:
        """Return the figures and tables of a marked clock; None if it was not gathered, or the application raised.

        A failure does not end the training: it appears again in the evaluation at the end.
        """
        try:
            sharding = await on_thread(sharding_of, instruction.config)
            shards = await marked(self._transfers, sharding, instruction.owners, instruction.group)
            states = await own_states(self._transfers, instruction.config, instruction.states)
            await self._count(shards, instruction.owners, states, instruction.states)
            arrays = await on_thread(whole_tables, instruction.config, shards, states)
            return await self.evaluate_tables(instruction.config, arrays), arrays
        except Exception as error:  # noqa: BLE001 - any error of a node, a store or an application
            logger.warning("clock %d was not evaluated: %s", instruction.clock, format_error(error))
            return None

    async def evaluate_tables(self, config: JobConfig, arrays: Arrays) -> dict[str, float | None]:
        """Return the application's figures for whole tables, by name; figures that are not finite are None.

        Raises
        ------
        ApplicationRaised
        """

        def evaluate() -> dict[str, float | None]:
            if self._heldout is None or self._heldout[0] != config.data_url:
                self._heldout = config.data_url, self._read_heldout(config.data_url)
            app = resolve(config.app, config.app_params)
            try:
                figures = app.evaluate(arrays, self._heldout[1])
                return {name: _finite(value) for name, value in figures_of(app.evaluate, figures).items()}
            except BaseException as error:  # it is on a thread of its own
                raise ApplicationRaised(format_error(error, config.app)) from error

        async with self._one_at_a_time:
            return await on_thread(evaluate)


def sharding_of(config: JobConfig) -> Sharding:
    """Return the sharding of a job's tables on the servers. It runs the user's code: call it on a thread."""
    return Sharding(shared_tables(resolve(config.app, config.app_params)), config.n_shards)


async def own_states(transfers: Transfers, config: JobConfig, states: Sequence[StateRef]) -> dict[int, Arrays]:
    """Return the states of partitions that rows of own tables are in; none if the job has no such table."""

    def has_own_tables() -> bool:
        return bool(own_tables(resolve(config.app, config.app_params)))

    if not await on_thread(has_own_tables):
        return {}
    return await states_at(transfers, states)


def whole_tables(config: JobConfig, shards: Mapping[int, Arrays], states: Mapping[int, Arrays]) -> Arrays:
    """Return whole tables of a job, from all shards and from the states of its partitions.

    It runs the user's code, and copies the model: call it on a thread.
    """
    app = resolve(config.app, config.app_params)
    arrays = sharding_of(config).join([shards[shard] for shard in range(config.n_shards)])
    arrays |= whole_own_tables(app, states, initial_rows(app, config.seed, config.n_shards))
    return {table.name: arrays[table.name] for table in tables_of(app)}


def _finite(value: float) -> float | None:
    """Return a figure as JSON can hold it; None if it is not finite."""
    return value if math.isfinite(value) else None
