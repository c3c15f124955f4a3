"""Holding a model against the held-out data, in the controller's process, on a thread beside its event loop.

One evaluation at a time, so that the application needs the memory of one. What is held out is read once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.apps.registry import resolve
from psengine.config import JobConfig
from psengine.protocol.instructions import Evaluate, ShardOwner
from psengine.rpc.transport import Transport, deadline_s
from psengine.tables.sharding import Arrays, Sharding
from psengine.telemetry.formatting import format_error

logger = logging.getLogger(__name__)

_GATHER_DEADLINE_S = 60.0


class ApplicationRaised(Exception):
    """The application's `evaluate` raised: asking it again is useless."""


class Evaluator:
    """Evaluates the models of one job.

    Parameters
    ----------
    read_heldout : callable
        Returns the held-out arrays under a data URL; blocks, called on a thread.
    count : callable
        Is told of every shard that was gathered for an evaluation.
    """

    def __init__(
        self,
        transport: Transport,
        read_heldout: Callable[[str], Mapping[str, NDArray[np.generic]]],
        count: Callable[[Mapping[int, Arrays]], None],
    ) -> None:
        self._transport, self._read_heldout, self._count = transport, read_heldout, count
        self._heldout: tuple[str, Mapping[str, NDArray[np.generic]]] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def evaluate(self, order: Evaluate) -> dict[str, float | None] | None:
        """Return the figures of what the shards marked; None where it could not be had, or the application raised.

        That is no reason to end a training: it is seen at its end again.
        """
        try:
            shards = await self._marked(order)
            self._count(shards)
            return await self.judge(order.config, whole_tables(order.config, shards))
        except Exception as error:  # noqa: BLE001 - whatever a node, a store or an application raises
            logger.warning("clock %d was not evaluated: %s", order.clock, format_error(error))
            return None

    async def judge(self, config: JobConfig, arrays: Arrays) -> dict[str, float | None]:
        """Return what the application says of whole tables by name; what is not finite is None.

        Raises
        ------
        ApplicationRaised
        """

        def held_against() -> dict[str, float | None]:
            if self._heldout is None or self._heldout[0] != config.data_url:
                self._heldout = config.data_url, self._read_heldout(config.data_url)
            app = resolve(config.app, config.app_params)
            try:
                said = app.evaluate(arrays, self._heldout[1])
                return {str(name): _finite(value) for name, value in said.items()}
            except Exception as error:
                raise ApplicationRaised(format_error(error, config.app)) from error

        async with self._one_at_a_time:
            return await asyncio.to_thread(held_against)

    async def _marked(self, order: Evaluate) -> dict[int, Arrays]:
        sharding = sharding_of(order.config)

        def within_s(shards: Iterable[int]) -> float:
            return deadline_s(_GATHER_DEADLINE_S, sharding.all_bytes(shards))

        answers = await asyncio.gather(
            *(
                self._transport.call(address, "proteus_marked", within_s(epochs), epochs=epochs, clock=order.clock)
                for address, epochs in by_server(order.owners).items()
            )
        )
        shards: dict[int, Arrays] = {}
        for answer in answers:
            if answer["status"] != "ok":
                raise RuntimeError(answer["error"])
            shards |= {int(shard): arrays for shard, arrays in answer["shards"].items()}
        return shards


def by_server(owners: Sequence[ShardOwner]) -> dict[str, dict[int, int]]:
    """Return {address: {shard: epoch}} of those who serve."""
    servers: dict[str, dict[int, int]] = {}
    for owner in owners:
        servers.setdefault(owner.address, {})[owner.shard] = owner.epoch
    return servers


def sharding_of(config: JobConfig) -> Sharding:
    """Return how a job's tables are cut."""
    return Sharding(resolve(config.app, config.app_params).tables(), config.n_shards)


def whole_tables(config: JobConfig, shards: Mapping[int, Arrays]) -> Arrays:
    """Return whole tables of all shards of a job."""
    return sharding_of(config).join([shards[shard] for shard in range(config.n_shards)])


def _finite(value: Any) -> float | None:
    """Return a figure as JSON can hold it: a NumPy number is one, what is not finite is None."""
    number = float(value)
    return number if math.isfinite(number) else None
