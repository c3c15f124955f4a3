"""Collection of the states of executors from the nodes that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from psengine.protocol.executor_state import StateRef
from psengine.rpc.transfers import Transfers
from psengine.tables.sharding import Arrays

_DEADLINE_S = 60.0


class GoneOn(RuntimeError):
    """The requested clock is not available (any more): the training has gone on meanwhile."""


async def states_at(transfers: Transfers, states: Sequence[StateRef]) -> dict[int, Arrays]:
    """Return states of executors, by executor, from the processes that have them; not those in a checkpoint.

    Raises
    ------
    GoneOn, Unreachable
        A process does not have a state any more, or does not answer.
    """
    by_process: dict[str, list[StateRef]] = {}
    for ref in states:
        if not ref.checkpoint:
            by_process.setdefault(ref.address, []).append(ref)
    answers = await asyncio.gather(
        *(
            transfers.call(
                address,
                "proteus_states",
                _DEADLINE_S,
                0,
                again=True,
                wanted=[(ref.executor, ref.group, ref.attempt) for ref in refs],
            )
            for address, refs in by_process.items()
        )
    )
    found = {state.executor: state.arrays for answer in answers for state in answer.states}
    if missing := {ref.executor for refs in by_process.values() for ref in refs} - set(found):
        raise GoneOn(f"the states of executors {sorted(missing)} are not available any more")
    return found
