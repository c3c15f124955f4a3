"""Real servers whose shards move, are replicated and lost, while clients push by maps that may be old, repeatedly.

The controller is modelled: it moves shards one at a time, takes back shards whose move may have failed, and rolls back
to the last replicas when a server is lost. No other process may write, and no acknowledged update is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proteus_spot.psengine.protocol.answers import HandedOver, Moved, Pushed, Rows, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import StaleReadError
from proteus_spot.psengine.server.store_work import LargeWork

SHARDS, PARTITIONS = 2, 3
WAITS = "it is on its way"
#: Whether what a request does on a thread is held until the machine lets it go on.
IS_SLOW = ContextVar("IS_SLOW", default=False)


@dataclass
class Move:
    """A shard on its way; `states` once its server, `before`, has handed it over and the answer has come."""

    shard: int
    epoch: int
    to: str
    before: ShardOwner
    states: dict[int, ShardState] | None = None


@dataclass
class Sent:
    """A message as it was sent, so that it can come once more."""

    shard: int
    server: str
    epoch: int
    clock: int
    partition: int
    attempt: int
    committed: int


class ShardMachine(RuleBasedStateMachine):
    @initialize(n=st.integers(2, 4))
    def begin(self, n: int) -> None:
        self.loop = asyncio.new_event_loop()
        #: what threads of servers are to do
        self.held: list[asyncio.Future[None]] = []
        #: requests under way, and partitions whose updates are
        self.under_way: list[asyncio.Task[Any]] = []
        self.at_work: set[int] = set()
        self.servers: dict[str, ShardServer] = {}
        self.names = self.epoch = self.generation = 0
        self.kept: tuple[int, dict[int, ShardState]] | None = None
        self.done = [0] * PARTITIONS
        self.attempts: dict[tuple[int, int], int] = {}
        #: {(clock, partition): the attempt that was acknowledged}
        self.counts: dict[tuple[int, int], int] = {}
        self.owners: dict[int, ShardOwner] = {}
        self.move: Move | None = None
        self.given_up: list[Move] = []
        self.sent: list[Sent] = []
        #: what was read, and what it was then
        self.seen: list[tuple[Any, Any]] = []
        #: what clients know, and of which generation it is
        self.map: dict[int, ShardOwner] = {}
        self.map_of = 0
        for _ in range(n):
            self.join()
        self.open()
        self.tell(list(self.servers), True)

    # -- threads --------------------------------------------------------------------------------------------------

    async def on_thread(self, work: Callable[[], Any]) -> Any:
        """Do work when the machine lets it; other messages come before that, and before its result is taken."""
        await self.hold()
        result = work()
        await self.hold()
        return result

    async def hold(self) -> None:
        if IS_SLOW.get():
            self.held.append(self.loop.create_future())
            await self.held[-1]

    def begin_slowly(self, request: Coroutine[Any, Any, Any]) -> None:
        token = IS_SLOW.set(True)
        self.under_way.append(self.loop.create_task(request))
        IS_SLOW.reset(token)
        self.idle()

    def idle(self) -> None:
        """Let requests do what they can; raise what they have raised."""
        for _ in range(30):
            self.loop.run_until_complete(asyncio.sleep(0))
        for task in [task for task in self.under_way if task.done()]:
            self.under_way.remove(task)
            task.result()

    def done_at_once(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a request; those that it waits for go on."""
        task = self.loop.create_task(request)
        self.idle()
        while not task.done():
            assert self.held, "it waits for nobody"
            self.held.pop(0).set_result(None)
            self.idle()
        return task.result()

    def ask(self, request: Coroutine[Any, Any, Any], slow: bool) -> None:
        self.begin_slowly(request) if slow else self.done_at_once(request)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """A thread does its work, or its result is taken."""
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1))).set_result(None)
        self.idle()

    # -- what the controller does ---------------------------------------------------------------------------------

    @rule()
    def join(self) -> None:
        if len(self.servers) < 5:
            self.names += 1
            self.servers[f"s{self.names}"] = made = ShardServer()
            made.large = LargeWork(self.on_thread, 0)

    def open(self) -> None:
        """Begin a generation from what was kept, or from the beginning."""
        self.epoch += 1
        self.generation, self.move = self.epoch, None
        clock, states = self.kept or (0, {s: ShardState({"w": np.zeros((1, 1))}, 0, 0) for s in range(SHARDS)})
        names = sorted(self.servers)
        self.owners = {s: self.owner(s, names[(s + self.epoch) % len(names)], self.epoch) for s in range(SHARDS)}
        for shard, owner in self.owners.items():
            self.done_at_once(self.servers[owner.node].open({shard: states[shard]}, PARTITIONS, self.epoch))
        self.done = [clock] * PARTITIONS
        self.counts = {key: attempt for key, attempt in self.counts.items() if key[0] <= clock}

    def owner(self, shard: int, name: str, epoch: int) -> ShardOwner:
        return ShardOwner(shard, name, name, epoch)

    @rule(data=st.data(), clients=st.booleans())
    def told(self, data: st.DataObject, clients: bool) -> None:
        """Some hear of the map, others later."""
        self.tell(data.draw(st.lists(st.sampled_from(sorted(self.servers)), unique=True)), clients)

    def tell(self, names: list[str], clients: bool) -> None:
        for name in names:
            self.servers[name].forget([o for o in self.owners.values() if o.node != name], self.generation)
        if clients:
            self.map, self.map_of = dict(self.owners), self.generation

    @precondition(lambda self: self.move is None and len(self.servers) > 1)
    @rule(data=st.data(), shard=st.integers(0, SHARDS - 1))
    def begin_to_move(self, data: st.DataObject, shard: int) -> None:
        heirs = sorted(set(self.servers) - {self.owners[shard].node})
        self.start(shard, data.draw(st.sampled_from(heirs)))

    def start(self, shard: int, to: str) -> None:
        self.epoch += 1
        self.move = Move(shard, self.epoch, to, self.owners[shard])
        self.servers[to].expect([shard], self.epoch)

    @precondition(lambda self: self.move is not None)
    @rule(lost=st.booleans(), slow=st.booleans())
    def hand_over(self, lost: bool, slow: bool = False) -> None:
        """The heir asks; the answer is lost, or comes: then he has them once he takes them."""
        assert self.move is not None
        self.ask(self.handed_over(self.move, lost), slow)

    async def handed_over(self, move: Move, lost: bool = False) -> None:
        server, epochs = self.servers[move.before.node], {move.shard: move.before.epoch}
        answer = await server.hand_over(epochs, move.to, move.to, move.epoch, self.common())
        assert isinstance(answer, HandedOver) or self.move is not move, answer
        if isinstance(answer, HandedOver) and not lost:
            move.states = dict(answer.states)

    @precondition(lambda self: self.move is not None and self.move.states is not None)
    @rule(slow=st.booleans())
    def take(self, slow: bool = False) -> None:
        assert self.move is not None
        self.ask(self.taken(self.move), slow)

    async def taken(self, move: Move) -> None:
        assert move.states is not None
        await self.servers[move.to].take(PARTITIONS, move.states, move.epoch)
        if self.move is move:
            self.owners[move.shard], self.move = self.owner(move.shard, move.to, move.epoch), None

    @precondition(lambda self: self.move is not None)
    @rule()
    def give_up(self) -> None:
        """The new owner gives up, or is lost: the server may have handed the shard over, and is to take it back."""
        move = self.move
        assert move is not None
        if move.to in self.servers:
            self.servers[move.to].cancel_expected([move.shard], move.epoch)
        self.given_up.append(move)
        self.start(move.shard, move.before.node)

    def take_back(self) -> None:
        self.give_up()
        self.hand_over(lost=False)
        self.take()

    @precondition(lambda self: self.given_up)
    @rule(data=st.data(), asks=st.booleans())
    def late(self, data: st.DataObject, asks: bool) -> None:
        """An heir that was given up asks late, or its answer comes late: it serves nothing."""
        move = data.draw(st.sampled_from(self.given_up))
        if asks and move.before.node in self.servers:
            self.done_at_once(self.handed_over(move))  # granted to one whom nobody has told otherwise
        if move.states is not None and move.to in self.servers:
            self.done_at_once(self.servers[move.to].take(PARTITIONS, move.states, move.epoch))

    @precondition(lambda self: self.move is None)
    @rule(slow=st.booleans())
    def keep(self, slow: bool) -> None:
        self.ask(self.copied(), slow)

    async def copied(self) -> None:
        clock, states, generation = self.common(), dict[int, ShardState](), self.generation
        try:
            for shard, owner in self.owners.items():
                states |= await self.servers[owner.node].copy({shard: owner.epoch}, clock)
        except (StaleReadError, KeyError):  # a later clock is common by now, or shards have moved, or a server is gone
            assert IS_SLOW.get()
            return
        assert {state.folded for state in states.values()} == {clock * PARTITIONS}
        if self.generation == generation and (self.kept is None or self.kept[0] <= clock):
            self.kept = clock, states

    @precondition(lambda self: len(self.servers) > 1)
    @rule(data=st.data(), warned=st.booleans())
    def lose(self, data: st.DataObject, warned: bool) -> None:
        """A server is gone; one that was warned has moved its shards before, so that nothing goes with it."""
        name = data.draw(st.sampled_from(sorted(self.servers)))
        if warned:
            self.leave(name)
        acknowledged, serves = dict(self.counts), any(owner.node == name for owner in self.owners.values())
        del self.servers[name]
        if serves:
            self.open()
        elif self.move is not None and self.move.to == name:
            self.give_up()
        assert serves or self.counts == acknowledged
        assert not (warned and serves)

    def leave(self, name: str) -> None:
        if self.move is not None:
            self.take_back()
        for shard in [shard for shard, owner in self.owners.items() if owner.node == name]:
            self.start(shard, min(set(self.servers) - {name}))
            self.hand_over(lost=False)
            self.take()

    # -- what clients do ------------------------------------------------------------------------------------------

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        anew=st.booleans(),
        some=st.sampled_from([(0,), (1,), (0, 1), (0, 1)]),
        slow=st.booleans(),
    )
    def work(self, partition: int, anew: bool, some: tuple[int, ...], slow: bool = False) -> None:
        """Send a task's updates to all shards or some; it is done when servers of this generation have all."""
        if partition not in self.at_work and self.done[partition] <= self.common():
            self.ask(self.worked(partition, anew, some), slow)

    async def worked(self, partition: int, anew: bool, some: tuple[int, ...]) -> None:
        clock, generation = self.done[partition] + 1, self.map_of
        key = clock, partition
        if anew or key not in self.attempts:
            self.attempts[key] = self.attempts.get(key, 0) + 1
        attempt = self.attempts[key]
        answers: list[Any] = []
        self.at_work.add(partition)
        for shard in some:
            known = self.map[shard]
            sent = Sent(shard, known.node, known.epoch, clock, partition, attempt, self.common())
            self.sent.append(sent)
            answers.append(await self.push(sent))
        self.at_work.discard(partition)
        if answers == [Pushed()] * SHARDS and generation == self.map_of == self.generation:
            self.done[partition] += 1
            self.counts[key] = attempt

    async def push(self, sent: Sent) -> Any:
        """Send a message to whom the map names, and on to where the shard has gone; return the last answer."""
        name, epoch = sent.server, sent.epoch
        for _ in range(20):
            server = self.servers.get(name)
            if server is None:
                return "nobody there"
            if sent.shard in server._arriving:
                return WAITS
            block = [(sent.partition, [sent.attempt])]
            to: dict[str, Any] = {
                "group": sent.clock,
                "epochs": {sent.shard: epoch},
                "blocks": block,
                "committed": sent.committed,
            }
            answer = await server.push(**to, updates=self.updates(sent))
            if not isinstance(answer, Moved):
                return answer
            (after,) = answer.owners
            assert after.epoch > epoch, "it is sent in a circle"
            name, epoch = after.node, after.epoch
        raise AssertionError("it is sent on for ever")

    @precondition(lambda self: self.move is None and len(self.servers) > 1)
    @rule(data=st.data(), shard=st.integers(0, SHARDS - 1), partition=st.integers(0, PARTITIONS - 1))
    def work_while_a_shard_moves(self, data: st.DataObject, shard: int, partition: int) -> None:
        """A server's thread has the updates when it is to hand the shard over."""
        self.work(partition, False, (0, 1), slow=True)
        self.begin_to_move(data, shard)
        self.hand_over(lost=False)
        self.take()

    def updates(self, sent: Sent) -> dict[int, Any]:
        return {sent.shard: [{"w": np.full((1, 1), self.value(sent.clock, sent.partition, sent.attempt))}]}

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), slow=st.booleans())
    def once_more(self, data: st.DataObject, slow: bool) -> None:
        """A message comes again, however late; its sender has long stopped waiting for the answer."""
        self.ask(self.push(data.draw(st.sampled_from(self.sent))), slow)

    @rule(shard=st.integers(0, SHARDS - 1), slow=st.booleans())
    def read(self, shard: int, slow: bool) -> None:
        """Whoever reads by a map of this generation reads the committed state, or is told to wait or where to go."""
        if self.map_of == self.generation:
            self.ask(self.was_read(shard), slow)

    async def was_read(self, shard: int) -> None:
        owner, clock, total, generation = self.map[shard], self.common(), self.total(self.common()), self.generation
        for _ in range(20):
            server = self.servers.get(owner.node)
            if server is None or shard in server._arriving:
                return
            answer = await server.read({shard: owner.epoch}, Committed(clock, exact=True))
            if isinstance(answer, Rows):
                assert answer.shards[shard]["w"].item() == total
                return
            if isinstance(answer, StaleEpoch) and (owner.epoch < self.owners[shard].epoch or self.move is not None):
                return  # it was taken back; a newer map says so
            if isinstance(answer, StaleRead) and (clock < self.common() or generation < self.generation):
                return  # it had to wait for its turn
            assert isinstance(answer, Moved), answer
            (owner,) = answer.owners

    @rule(data=st.data(), slow=st.booleans())
    def read_all(self, data: st.DataObject, slow: bool) -> None:
        """All shards of one server are read; what was read stays what it was."""
        name = data.draw(st.sampled_from(sorted(self.servers)))
        going = None if self.move is None else self.move.shard
        epochs = {s: owner.epoch for s, owner in self.owners.items() if owner.node == name and s != going}
        self.ask(self.all_read(self.servers[name], epochs), slow)

    async def all_read(self, server: ShardServer, epochs: dict[int, int]) -> None:
        total, clock, owners = self.total(self.common()), self.common(), dict(self.owners)
        answer = await server.read(epochs, Committed(clock, exact=True))
        if not isinstance(answer, Rows):  # it had to wait for its turn
            assert clock < self.common() or owners != self.owners or self.move is not None, answer
            return
        for tables in answer.shards.values():
            assert tables["w"].item() == total
            self.seen.append((tables["w"], tables["w"].copy()))

    # -- what must hold -------------------------------------------------------------------------------------------

    def value(self, clock: int, partition: int, attempt: int) -> float:
        return 10_000.0 * clock + 100.0 * partition + attempt

    def total(self, clock: int) -> float:
        return sum(self.value(c, p, attempt) for (c, p), attempt in self.counts.items() if c <= clock)

    def common(self) -> int:
        return min(self.done)

    def serving(self, shard: int, epoch: int) -> list[str]:
        return [
            name
            for name, server in self.servers.items()
            if server._elsewhere({shard: epoch}) is None and server._stale({shard: epoch}) is None
        ]

    @invariant()
    def no_shard_has_two_servers_in_one_epoch(self) -> None:
        for shard in range(SHARDS):
            for epoch in range(1, self.epoch + 1):
                assert len(self.serving(shard, epoch)) <= 1, (shard, epoch)

    @invariant()
    def a_shard_that_stays_has_its_server(self) -> None:
        for shard, owner in self.owners.items():
            if self.move is None or self.move.shard != shard:
                assert self.serving(shard, owner.epoch) == [owner.node]

    def teardown(self) -> None:
        """All maps told and all work done, the model has each task once."""
        if not hasattr(self, "owners"):
            return
        while self.held:
            self.held.pop(0).set_result(None)
            self.idle()
        assert not self.under_way
        assert all(np.array_equal(now, then) for now, then in self.seen)
        if self.move is not None:
            self.take_back()
        self.tell(list(self.servers), True)
        last = max(self.done)
        for _ in range(2):
            for partition in range(PARTITIONS):
                if self.done[partition] <= last:
                    self.work(partition, True, (0, 1))
        assert self.common() >= last
        for shard, owner in self.owners.items():
            found: Any = self.done_at_once(self.servers[owner.node].gather({shard: owner.epoch}, self.common()))
            assert found.shards[shard]["w"].item() == self.total(self.common())
            assert found.folded[shard] == self.common() * PARTITIONS
        self.loop.close()


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
