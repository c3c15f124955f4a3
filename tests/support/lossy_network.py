"""In-memory links between processes of a test: they lose, duplicate, delay and reorder messages, and can be cut.

A `Wire` is a `psengine.rpc.transport.Transport`. Faults are seeded.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from distributed.core import Status

from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.shell.dask_transport import received

Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Trouble:
    """How often what befalls a message, a request or an answer: probabilities, and seconds."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    #: up to so many seconds a late message takes, and every other one
    late_s: float = 30.0
    usual_s: float = 0.01
    #: Bytes per second of each machine's link, each way; None: messages take no time of it.
    rate: float | None = None


#: Bytes that a message has of a link at a time: messages that share a link take turns.
CHUNK = 20_000


@dataclass
class Process:
    """What answers at an address: operations by name, and what is under way there, which dies with it."""

    handlers: Mapping[str, Handler]
    under_way: dict[asyncio.Task[None], None] = field(default_factory=dict)


class Wires:
    """All wires of a story; `cuts` holds (from, to), two machines, where nothing passes now."""

    def __init__(self, dice: random.Random, trouble: Trouble) -> None:
        self.dice, self.trouble = dice, trouble
        self.processes: dict[str, Process] = {}
        self.cuts: set[tuple[str, str]] = set()
        #: Called for every message on arrival ("asked"), when it is processed ("done"), and when the answer is sent
        #: ("answered"), with the operation and the addresses of the caller and the peer.
        self.watch: Callable[[str, str, str, str], None] = lambda moment, op, asks, answers: None
        #: The links out of and into each machine.
        self._out, self._into = (
            defaultdict[str, asyncio.Lock](asyncio.Lock),
            defaultdict[str, asyncio.Lock](asyncio.Lock),
        )
        #: how often what befell a message
        self.befell: dict[str, int] = {"lost": 0, "doubled": 0, "late": 0, "cut": 0}

    def listen(self, address: str, handlers: Mapping[str, Handler]) -> Process:
        """Have a process answer at `address`."""
        self.processes[address] = process = Process(handlers)
        return process

    def hang_up(self, address: str) -> None:
        """End the process at `address`: what it was about to answer is never said."""
        process = self.processes.pop(address, None)
        for task in list(process.under_way) if process else ():
            task.cancel()

    def wire(self, address: str) -> Wire:
        """Return the transport of the process at `address`."""
        return Wire(self, address)

    def passes(self, from_: str, to: str) -> bool:
        """Return whether a message passes now, and count it if it does not."""
        if not self.open(from_, to):
            self.befell["cut"] += 1
            return False
        return not self.happens("lost", self.trouble.lost)

    def open(self, from_: str, to: str) -> bool:
        """Return whether the way between two machines is not cut."""
        return (machine(from_), machine(to)) not in self.cuts

    async def carry(self, from_: str, to: str, message: Any) -> None:
        """Return when a message has passed both links; what is cancelled takes no more of them."""
        rate = self.trouble.rate
        left = 0 if rate is None or machine(from_) == machine(to) else len(pickle.dumps(message))
        while left > CHUNK and rate is not None:  # small messages pass between the large ones
            async with self._out[machine(from_)], self._into[machine(to)]:
                await asyncio.sleep(CHUNK / rate)
            left -= CHUNK

    def happens(self, what: str, probability: float) -> bool:
        happens = self.dice.random() < probability
        self.befell[what] = self.befell.get(what, 0) + happens
        return happens

    def delay_s(self) -> float:
        late = self.happens("late", self.trouble.late)
        return self.dice.uniform(0.0, self.trouble.late_s if late else self.trouble.usual_s)


class Wire:
    """The way out of one process."""

    def __init__(self, wires: Wires, address: str) -> None:
        self._wires, self._address = wires, address

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        wires, loop = self._wires, asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        await wires.carry(self._address, address, message)
        for _ in range(1 + wires.happens("doubled", wires.trouble.doubled)):
            loop.call_later(wires.delay_s(), self._arrives, address, op, message, answered)
        try:
            return await asyncio.wait_for(answered, deadline_s)
        except OSError as error:
            raise Unreachable(address, op, error) from error

    def _arrives(self, address: str, op: str, message: dict[str, Any], answered: asyncio.Future[Any]) -> None:
        self._wires.watch("asked", op, self._address, address)
        process = self._wires.processes.get(address)
        if not self._wires.passes(self._address, address):
            if self._wires.dice.random() < 0.5:  # else nobody says so, and the deadline does
                _settle(answered, ConnectionResetError("the connection broke"))
            return
        if process is None:
            _settle(answered, ConnectionRefusedError("nobody is there"))
            return
        task = asyncio.get_running_loop().create_task(self._answer(process, address, op, message, answered))
        process.under_way[task] = None
        task.add_done_callback(process.under_way.pop)

    async def _answer(
        self, process: Process, address: str, op: str, message: dict[str, Any], answered: asyncio.Future[Any]
    ) -> None:
        try:
            outcome = received(await _handled(process.handlers[op], message))
        except Exception as error:  # noqa: BLE001 - it is handed to whoever asked
            outcome = error
        self._wires.watch("done", op, self._address, address)
        await self._wires.carry(address, self._address, outcome)
        if self._wires.processes.get(address) is not process:
            return  # the dead say nothing
        if self._wires.passes(address, self._address):
            asyncio.get_running_loop().call_later(self._wires.delay_s(), _settle, answered, outcome)
        self._wires.watch("answered", op, self._address, address)


class Line:
    """The connection that a message has come by, for handlers that write their answer themselves."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def write(self, answer: Any) -> None:
        self.written.append(answer)


async def _handled(handler: Handler, message: dict[str, Any]) -> Any:
    """Return what a handler answers; Dask, too, hands the connection to one whose first parameter is `comm`."""
    if next(iter(signature(handler).parameters), None) != "comm":
        return await handler(**message)
    line = Line()
    assert await handler(line, **message) is Status.dont_reply
    (answer,) = line.written
    return answer


def machine(address: str) -> str:
    """Return the machine of a process: it stays the same when the process is another."""
    return address.rpartition("/")[0]


def _settle(answered: asyncio.Future[Any], outcome: Any) -> None:
    if answered.done():
        return
    if isinstance(outcome, Exception):
        answered.set_exception(outcome)
        answered.exception()  # looked at: its asker may have gone
    else:
        answered.set_result(outcome)
