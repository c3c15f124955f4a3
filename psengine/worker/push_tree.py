"""A node's part in the tree of pushes: it adds the sums of its children to its own, and sends the result to its parent.

A child sends its sums to its parent, and then requests their status until it is final:

| status | meaning |
|---|---|
| held | the parent has not begun to add up yet |
| taken | the parent adds the sums to its own |
| done | the sums are on the servers, and the node that sent them there has reported them |
| refused | the sums were not used, and never will be: the child sends them to the servers itself |
| failed | the sums may have been used: the micro-tasks are dispatched again, and their results are sent once more |

A parent that does not answer counts as "failed". Sums never count twice: the status "refused" is final, and after
"failed" the micro-tasks have higher attempts. See `scheduling.push_tree` for how they are completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from psengine.config import JobConfig
from psengine.protocol.answers import ChildSums, SumsStatus
from psengine.protocol.events import Contribution, TaskStats
from psengine.protocol.instructions import Dispatch, TreePlace
from psengine.tables.sharding import Sharding
from psengine.worker.parameter_client import ParameterClient
from psengine.worker.push_messages import BlockSum, add_up
from psengine.worker.routing import SupersededError

#: Generation, clock and tree: sums of other ones are not added up together.
Key = tuple[int, int, int]

#: Maximum seconds that a request for the status waits before it is repeated.
ANSWER_WAITS_S = 5.0
#: Seconds that a parent has to answer, in addition to the transfer time of the sums.
_DEADLINE_S = 10.0
#: Number of messages of a child, and of clocks, that are remembered.
_REMEMBERED = 8
#: Maximum time that the sums of a child are held, as a multiple of its patience.
_HELD = 2.0
#: Seconds, plus a multiple of its patience, that a child waits for a parent that has taken its sums: the parent may be
#: cut off from the controller, which considers it lost.
_TAKEN_S, _TAKEN = 15.0, 8.0


@dataclass
class _Ticket:
    """Sums of a child, and their status."""

    key: Key
    sums: Sequence[BlockSum]
    contributions: tuple[Contribution, ...]
    status: SumsStatus = "held"


class PushTree:
    """The tree as this process sees it.

    Parameters
    ----------
    node, address : str
        Name of the node, and address of this process.
    """

    def __init__(self, node: str, address: str, client: ParameterClient) -> None:
        self._node, self._address, self._client = node, address, client
        self._sequence = 0
        #: {address of a child: its last messages by number}
        self._tickets: dict[str, dict[int, _Ticket]] = {}
        #: Keys whose sums were added up, the newest last: later sums are refused.
        self._closed: dict[Key, None] = {}
        #: {batch: the tickets whose sums are in those of the batch}
        self._used: dict[int, list[_Ticket]] = {}
        self._changed = asyncio.Event()

    # -- messages of children ------------------------------------------------------------------------------------------

    def hold(
        self,
        sender: str,
        sequence: int,
        key: Sequence[int],
        sums: Sequence[BlockSum],
        contributions: tuple[Contribution, ...],
    ) -> ChildSums:
        """Take the sums of a child; return their status. A repeated message, or a late one, changes nothing."""
        tickets = self._tickets.setdefault(sender, {})
        if sequence > max(tickets, default=0):
            generation, clock, tree = key
            ticket = _Ticket((generation, clock, tree), sums, contributions)
            if ticket.key in self._closed:
                ticket.status, ticket.sums = "refused", ()
            tickets[sequence] = ticket
            for old in sorted(tickets)[:-_REMEMBERED]:
                del tickets[old]
            self._notify()
        return self._status(sender, sequence)

    async def answer(self, sender: str, sequence: int, before: SumsStatus, give_up: bool) -> ChildSums:
        """Return the status of a child's sums once it is not `before` any more, or after `ANSWER_WAITS_S`.

        `give_up`: sums that are held are refused.
        """
        ticket = self._tickets.get(sender, {}).get(sequence)
        if give_up and ticket is not None and ticket.status == "held":
            self._set([ticket], "refused")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ANSWER_WAITS_S
        while (answer := self._status(sender, sequence)).status == before and loop.time() < until_s:
            await self._wait(until_s)
        return answer

    def _status(self, sender: str, sequence: int) -> ChildSums:
        ticket = self._tickets.get(sender, {}).get(sequence)
        return ChildSums("failed" if ticket is None else ticket.status)

    # -- batches of this node -----------------------------------------------------------------------------------

    async def push(
        self,
        order: Dispatch,
        config: JobConfig,
        sharding: Sharding,
        sums: Sequence[BlockSum],
        results: tuple[TaskStats, ...],
        on_threads: Callable[..., Awaitable[list[BlockSum]]],
    ) -> tuple[Contribution, ...] | None:
        """Send the sums of a batch to the servers, through the tree if the batch has a place in it.

        Parameters
        ----------
        results : tuple of TaskStats
            What is reported of the batch.
        on_threads : callable
            Calls a function with arguments on a thread.

        Returns
        -------
        tuple of Contribution or None
            Micro-tasks of other nodes that are to be reported with the batch; None if another node has reported all.

        Raises
        ------
        SupersededError, Unreachable
            The batch is to be given up. Call `settle` when that is reported.
        """
        others: tuple[Contribution, ...] = ()
        if order.place is not None:
            taken = await self._gather(order, order.place, sums)
            if taken:
                every = [*sums, *(block for ticket in taken for block in ticket.sums)]
                sums = await on_threads(add_up, every, config.n_partitions, sharding.tables)
                others = tuple(contribution for ticket in taken for contribution in ticket.contributions)
            own = Contribution(self._node, self._address, results)
            if order.place.parent and await self._send_to_parent(order, order.place, sums, (own, *others)):
                self.settle(order.batch, done=True)
                return None
        await self._client.flush(sharding, order.clock, sums, order.committed)
        return others

    async def _gather(self, order: Dispatch, place: TreePlace, own: Sequence[BlockSum]) -> list[_Ticket]:
        """Return the children's sums for this batch, those that arrive in time; later ones are refused."""
        key = (order.generation, order.clock, place.tree)
        until_s = asyncio.get_running_loop().time() + place.patience_s
        while self._missing(key, place) and asyncio.get_running_loop().time() < until_s:
            await self._wait(until_s)
        self._closed[key] = None
        for old in list(self._closed)[:-_REMEMBERED]:
            del self._closed[old]
        found, present = list[_Ticket](), _partitions(own)
        for child in place.children:
            for ticket in self._tickets.get(child, {}).values():
                if ticket.key == key and ticket.status == "held":
                    fits = not present & _partitions(ticket.sums)
                    self._set([ticket], "taken" if fits else "refused")
                    if fits:
                        present |= _partitions(ticket.sums)
                        found.append(ticket)
        self._used[order.batch] = found
        return found

    def _missing(self, key: Key, place: TreePlace) -> list[str]:
        """Return the children that have sent nothing for this key."""
        return [
            child
            for child in place.children
            if not any(ticket.key == key for ticket in self._tickets.get(child, {}).values())
        ]

    async def _send_to_parent(
        self, order: Dispatch, place: TreePlace, sums: Sequence[BlockSum], contributions: tuple[Contribution, ...]
    ) -> bool:
        """Send sums to the parent; return whether they are on the servers, else this node has to send them there."""
        loop = asyncio.get_running_loop()
        self._sequence = sequence = self._sequence + 1
        held_until_s = loop.time() + _HELD * place.patience_s
        until_s = loop.time() + _TAKEN_S + _TAKEN * place.patience_s
        ask: dict[str, Any] = {"sender": self._address, "sequence": sequence}
        key = (order.generation, order.clock, place.tree)
        call = partial(self._client.transfers.call, place.parent)
        n_bytes = sum(delta.nbytes for *_, update in sums for delta in update.values())
        message = {**ask, "key": key, "sums": sums, "contributions": contributions}
        answer: ChildSums = await call("proteus_add_up", _DEADLINE_S, n_bytes, **message)
        self._client.count_push(place.parent, sums)
        while (status := answer.status) == "held" or (status == "taken" and loop.time() < until_s):
            give_up = status == "held" and loop.time() >= held_until_s
            question = {**ask, "before": status, "give_up": give_up}
            answer = await call("proteus_added_up", _DEADLINE_S, 0, again=True, **question)
        if status in ("failed", "taken"):
            raise SupersededError(f"the sums of clock {order.clock} have not reached the servers by {place.parent}")
        return status == "done"

    def settle(self, batch: int, done: bool) -> None:
        """Set the status of the children's sums that a batch has used: it was reported, or has failed."""
        self._set(self._used.pop(batch, ()), "done" if done else "failed")

    def _set(self, tickets: Sequence[_Ticket], status: SumsStatus) -> None:
        for ticket in tickets:
            ticket.status = status
            if status not in ("held", "taken"):
                ticket.sums = ()
        if tickets:
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self, until_s: float) -> None:
        """Return when a ticket has changed, or at a time of the loop."""
        left_s = until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([waiting], timeout=left_s)
            finally:
                waiting.cancel()


def _partitions(sums: Sequence[BlockSum]) -> set[int]:
    return {low + at for low, attempts, _ in sums for at in range(len(attempts))}
