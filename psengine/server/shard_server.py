"""The server of a node: it checks and answers the requests for the shards that it serves.

It is a plain class, no Dask actor: the scheduler releases an actor when the last client that holds its future leaves,
so servers would live exactly as long as some flow run or controller; and an actor's proxy does not survive a loss. A
plain object in the worker's process lives as long as the node and is reached by (address, operation).

Its state belongs to one event loop. Requests that read or change shards take turns, in their order of arrival: each
checks that the shards are served here, and is then applied completely or not at all. What reads or writes many bytes is
done on a thread, and the loop goes on. Maps and new shards replace stores meanwhile, but change none: a request that
has its turn is answered as if it had come before them.

A shard moves in one step of its server: `hand_over` returns the state with all updates received, and from then on
requests for the shard are redirected to its new owner, where they wait for the state (`arrived`). The old owner still
answers reads of exactly its committed state: under BSP no task that has yet to begin the group waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from proteus_spot.psengine.protocol.answers import (
    BadSum,
    GatheredRows,
    HandedOver,
    LateUpdate,
    Moved,
    NotYet,
    Pushed,
    Refusal,
    Rows,
    StaleEpoch,
    StaleRead,
)
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import ServedRead, ShardState
from proteus_spot.psengine.protocol.read_version import Before, Committed, Complete, KeptSum, ReadVersion
from proteus_spot.psengine.server import store_work
from proteus_spot.psengine.server.served_reads import LateUpdateError
from proteus_spot.psengine.server.shard_store import ShardStore, StaleReadError
from proteus_spot.psengine.server.store_work import LargeWork
from proteus_spot.psengine.tables.allowed_values import WrongSum
from proteus_spot.psengine.tables.row_sets import Wanted
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.tables.tree_sum import Delta

#: Maximum seconds that a read waits for updates before its client has to repeat it.
AHEAD_WAITS_S = 5.0

P = ParamSpec("P")
T = TypeVar("T")


def _checking_sums(request: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T | BadSum]]:
    @wraps(request)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T | BadSum:
        try:
            return await request(*args, **kwargs)
        except WrongSum as error:
            return BadSum(str(error))

    return answer


class ReadWaits:
    """Reads that wait for updates which have not arrived, in their order; each checks again when it is woken."""

    def __init__(self) -> None:
        #: {a read: whether it waits for single updates, not for a whole group}.
        self._waiting: dict[asyncio.Future[None], bool] = {}

    async def woken(self, until_s: float, single_updates: bool = False) -> bool:
        """Wait for a change; return False if the time, that of the event loop, is over."""
        loop = asyncio.get_running_loop()
        left_s = until_s - loop.time()
        if left_s <= 0:
            return False
        read: asyncio.Future[None] = loop.create_future()
        self._waiting[read] = single_updates
        try:
            await asyncio.wait([read], timeout=left_s)
        finally:
            del self._waiting[read]
        return True

    def wake(self, whole_group: bool = True) -> None:
        """Let reads check again: all, or, if no group has become complete, those that wait for single updates."""
        for read, single_updates in self._waiting.items():
            if not read.done() and (whole_group or single_updates):
                read.set_result(None)

    def __len__(self) -> int:
        """Return the number of reads that wait."""
        return len(self._waiting)


class ShardServer:
    """Shards of one node, each under an epoch."""

    def __init__(self) -> None:
        self.stores: dict[int, ShardStore] = {}
        #: Number of groups between two marked states (`marked`); None: no state is marked.
        self.mark_every: int | None = None
        #: The cut of the job's tables; None until the job is known.
        self.sharding: Sharding | None = None
        #: Whether tables of whole numbers are in the sparse form where that is smaller.
        self.is_compact = False
        #: Whether all numbers of tables have to be finite.
        self.finite = True
        #: Epoch at which all shards were last opened; stores of earlier epochs are obsolete.
        self.generation = 0
        #: {shard: its new owner} of shards that were handed over; their stores are frozen.
        self._moved: dict[int, ShardOwner] = {}
        #: {shard: (epoch, event set when it has arrived or its move failed)} of shards that are being moved here.
        self._arriving: dict[int, tuple[int, asyncio.Event]] = {}
        self._waits = ReadWaits()
        self.large = LargeWork()
        #: Held by the request that reads or changes stores.
        self._turn = asyncio.Lock()

    async def open(self, states: Mapping[int, ShardState], n_partitions: int, epoch: int) -> None:
        """Serve shards from these states; those already open under this epoch are not changed."""
        self.generation = max(epoch, self.generation)
        await self._begin(states, n_partitions, epoch, self._to_open)

    def _to_open(self, shard: int, epoch: int) -> bool:
        return epoch == self.generation and (shard not in self.stores or self.stores[shard].epoch < epoch)

    async def _begin(
        self, states: Mapping[int, ShardState], n_partitions: int, epoch: int, wanted: Callable[[int, int], bool]
    ) -> None:
        for shard, state in states.items():
            if wanted(shard, epoch):
                content = shard, epoch, n_partitions, state, self.sharding, self.is_compact, self.finite
                store = await self.large.do(state.full_bytes, partial(ShardStore.of, *content))
                if wanted(shard, epoch):  # nothing has replaced it meanwhile
                    self._serve(store)

    def _serve(self, store: ShardStore) -> None:
        store.mark_every = self.mark_every
        store.mark(store.committed_group)
        self.stores[store.shard] = store
        self._moved.pop(store.shard, None)
        self._let_in([store.shard])
        self._waits.wake()

    async def copy(self, epochs: Mapping[int, int], group: int) -> dict[int, ShardState]:
        """Return the committed state at the common group `group` of the shards named in `epochs`.

        Raises
        ------
        StaleReadError
            If a shard is not served under its epoch and at this group.
        """
        async with self._turn:
            if refused := self._refused(epochs):
                raise StaleReadError(refused.error)
            stores = {shard: self.stores[shard] for shard in epochs}
            await self.large.do(*store_work.fold(stores.values(), group))
            return {shard: store.copy(group) for shard, store in stores.items()}

    # -- shards that move -----------------------------------------------------------------------------------------

    async def hand_over(
        self, epochs: Mapping[int, int], to_node: str, to_address: str, epoch: int, committed: int = 0
    ) -> HandedOver | StaleEpoch:
        """Return the state of the shards named in `epochs`; the server at `to_address` owns them from now on.

        A repeated request, for the same or for a later owner, returns the same: no update is taken in between.

        Parameters
        ----------
        committed : int
            A complete group: its updates are folded before the state is taken, since block by block they would be as
            many arrays as nodes have worked on it.
        """
        async with self._turn:
            for shard, served in epochs.items():
                store = self.stores.get(shard)
                after = self._moved.get(shard)
                stale = store is None or store.epoch != served or served < self.generation
                if stale or (after is not None and after.epoch > epoch):
                    return StaleEpoch(f"shard {shard}: epoch {served} is not served here")
            stores = {shard: self.stores[shard] for shard in epochs}
            self._moved |= {shard: ShardOwner(shard, to_node, to_address, epoch) for shard in epochs}
            self._waits.wake()

            await self.large.do(*store_work.fold(stores.values(), committed))
            return HandedOver(await self.large.do(*store_work.state(stores)))

    def expect(self, shards: Collection[int], epoch: int) -> None:
        """Let requests for `shards` wait: the shards are being moved here."""
        for shard in shards:
            before = self._arriving.get(shard)
            self._arriving[shard] = (epoch, asyncio.Event() if before is None else before[1])

    async def take(self, n_partitions: int, states: Mapping[int, ShardState], epoch: int) -> None:
        """Serve shards from the state that their server has handed over; ignored if a later move was begun."""
        await self._begin(states, n_partitions, epoch, self._is_expected)

    def _is_expected(self, shard: int, epoch: int) -> bool:
        return self._arriving.get(shard, (0,))[0] == epoch

    def cancel_expected(self, shards: Collection[int], epoch: int) -> None:
        """Release requests that wait for shards whose move failed; they find that the shards are not served here."""
        self._let_in([shard for shard in shards if self._is_expected(shard, epoch)])

    def _let_in(self, shards: Collection[int]) -> None:
        for shard in shards:
            if shard in self._arriving:
                self._arriving.pop(shard)[1].set()

    async def arrived(self, shards: Collection[int]) -> None:
        """Return when none of `shards` is being moved here."""
        while waits := [self._arriving[shard][1].wait() for shard in shards if shard in self._arriving]:
            await asyncio.gather(*waits)

    def forget(self, owners: Sequence[ShardOwner], generation: int) -> None:
        """Drop the stores of shards that other servers own by a map.

        With a map of a later generation, everything of earlier generations is dropped.
        """
        self.generation = max(generation, self.generation)
        self._waits.wake()
        for owner in owners:
            if owner.shard in self.stores and self.stores[owner.shard].epoch < self.generation:
                self.stores.pop(owner.shard)
                self._moved.pop(owner.shard, None)
            if self._arriving.get(owner.shard, (self.generation,))[0] < self.generation:
                self._let_in([owner.shard])
            after = self._moved.get(owner.shard)
            if after is not None and after.epoch <= owner.epoch:
                self._moved[owner.shard] = owner
                self.stores.pop(owner.shard, None)

    # -- requests of clients --------------------------------------------------------------------------------------

    @_checking_sums
    async def push(
        self,
        group: int,
        epochs: Mapping[int, int],
        blocks: Sequence[tuple[int, Sequence[int]]],
        updates: Mapping[int, Sequence[Delta]],
        committed: int = 0,
    ) -> Pushed | Refusal:
        """Apply the updates of a batch to the shards of this server; a repeated message changes nothing.

        Parameters
        ----------
        epochs : mapping of shard to epoch
        blocks : sequence of (first partition, attempt of each of the block's partitions)
        updates : mapping of shard to the sum of each block's updates; it may be empty, and still counts as one.
        committed : int
            A complete group, known to the sender from the controller: it may be folded.
        """
        async with self._turn:
            if refused := self._refused(epochs):
                return refused
            if fault := next((fault for shard in epochs if (fault := self.stores[shard].reads.fault)), ""):
                return LateUpdate(fault)  # the node that was told so may be lost
            pushed = [(self.stores[shard], per_block) for shard, per_block in updates.items()]
            try:
                await self.large.do(*store_work.push(pushed, group, blocks, committed))
            except LateUpdateError as error:
                return LateUpdate(str(error))
            finally:  # also if the sender is cancelled: the updates have arrived
                self._waits.wake(whole_group=any(store.attempt(group) for store, _ in pushed))
        return Pushed()

    async def fold(self, committed: int, generation: int) -> None:
        """Add the updates of the groups up to `committed`, a complete one of `generation`, to the shards."""
        async with self._turn:
            if generation == self.generation:
                own = (store for shard, store in self.stores.items() if shard not in self._moved)
                await self.large.do(*store_work.fold([store for store in own if store.epoch >= generation], committed))

    async def until_readable(self, epochs: Mapping[int, int], version: ReadVersion) -> None:
        """Return when there is no use in waiting for what `read` wants, after at most `AHEAD_WAITS_S`."""
        if not isinstance(version, Complete):  # its reader does not follow shards
            await self.arrived(epochs)
        until_s = asyncio.get_running_loop().time() + AHEAD_WAITS_S
        waits = isinstance(version, Complete | Before)
        while waits:
            async with self._turn:
                waits = isinstance(self._not_readable(epochs, version), NotYet)
            waits = waits and await self._waits.woken(until_s, single_updates=isinstance(version, Before))

    @_checking_sums
    async def read(
        self, epochs: Mapping[int, int], version: ReadVersion, rows: Mapping[int, Wanted] | None = None
    ) -> Rows | Refusal:
        """Return rows of the shards named in `epochs`, in the state that `version` names.

        `rows` are the wanted rows, counted within the shard, by shard and table, None for all of a table; other tables
        are not returned. Without `rows`, all tables are.

        A shard that was handed over is still read here if that needs no later update.
        """
        async with self._turn:
            if refused := self._not_readable(epochs, version):
                return refused
            stores = {shard: self.stores[shard] for shard in sorted(epochs)}
            match version:
                case Committed(group, exact):
                    return await self.large.do(*store_work.read(stores, group, exact, rows))
                case KeptSum(group, table, partitions):
                    return await self.large.do(*store_work.kept_sums(stores, group, table, partitions))
                case Complete(group):
                    attempt = next(iter(stores.values())).attempt(group)
                    return await self.large.do(*store_work.read_ahead(stores, group, attempt, rows))
                case Before():
                    return await self._read_before(stores, version, rows or {})

    async def _read_before(
        self, stores: Mapping[int, ShardStore], version: Before, rows: Mapping[int, Wanted]
    ) -> Rows | StaleRead:
        await self.large.do(*store_work.fold(stores.values(), version.committed))
        found = await self.large.do(*store_work.read_before(stores, version.group, rows))
        for shard, store in stores.items():
            if isinstance(found, Rows) and (wanted := {**rows[shard], **version.named.get(shard, {})}):
                store.reads.note(ServedRead(version.group, version.readers, wanted))
        return found

    @_checking_sums
    async def gather(self, epochs: Mapping[int, int], committed: int) -> GatheredRows | Refusal:
        """Return the committed rows at `committed` and the number of distinct updates folded in each shard.

        The memory of update rules is among the rows: the training goes on from them.
        """
        async with self._turn:
            if refused := self._unreadable(epochs, committed, exact=True):
                return refused
            stores = {shard: self.stores[shard] for shard in sorted(epochs)}
            answer = await self.large.do(*store_work.read(stores, committed, exact=True, rows=None, memory=True))
            if not isinstance(answer, Rows):
                return answer
            return GatheredRows(answer.shards, {shard: store.folded for shard, store in stores.items()})

    @_checking_sums
    async def marked(self, epochs: Mapping[int, int], group: int) -> Rows | Refusal:
        """Return the rows of the shards named in `epochs` at the marked common group `group`.

        That group may be some groups ago, and the shard handed over since.
        """
        async with self._turn:
            if refused := self._stale(epochs):
                return refused
            stores = {shard: self.stores[shard] for shard in epochs}
            # A store that was handed over may lack updates.
            await self.large.do(*store_work.fold([store for s, store in stores.items() if s not in self._moved], group))
            for shard, store in stores.items():
                if group not in store.marks:
                    return StaleRead(f"shard {shard}: clock {group} is not marked (any more)")
            return await self.large.do(*store_work.marked(stores, group))

    def _not_readable(self, epochs: Mapping[int, int], version: ReadVersion) -> Refusal | None:
        """Return the answer to a read of what is not here, or not yet; else None."""
        if isinstance(version, Committed | KeptSum):
            return self._unreadable(epochs, version.group, not isinstance(version, Committed) or version.exact)
        if refused := self._refused(epochs):
            return refused
        stores = [self.stores[shard] for shard in epochs]
        if isinstance(version, Before):
            missing = [
                (group, partition)
                for group, partition in version.after
                if group > version.committed and not all(store.has(group, partition) for store in stores)
            ]
            return NotYet(f"the updates {missing} have not arrived") if missing else None
        attempts = {store.attempt(version.group) for store in stores}
        if len(attempts) == 1 and 0 not in attempts:
            return None
        if any(store.committed_group >= version.group for store in stores):
            return StaleRead(f"clock {version.group} is committed, by several attempts")
        return NotYet(f"clock {version.group} is not complete")

    def _unreadable(self, epochs: Mapping[int, int], committed: int, exact: bool) -> Moved | StaleEpoch | None:
        outdated = {
            shard: epoch
            for shard, epoch in epochs.items()
            if not (exact and shard in self.stores and self.stores[shard].committed_group == committed)
        }
        return self._elsewhere(outdated) or self._stale(epochs)

    def _refused(self, epochs: Mapping[int, int]) -> Moved | StaleEpoch | None:
        """Return the answer to a request for shards that are not all served here under these epochs; else None."""
        return self._elsewhere(epochs) or self._stale(epochs)

    def _elsewhere(self, epochs: Mapping[int, int]) -> Moved | None:
        if any(epoch < self.generation for epoch in epochs.values()):
            return None  # a client is not redirected into a generation that it does not know
        moved = {shard: self._moved[shard] for shard in epochs if shard in self._moved}
        if not moved:
            return None
        return Moved(tuple(moved.values()), f"shards {sorted(moved)} have moved")

    def _stale(self, epochs: Mapping[int, int]) -> StaleEpoch | None:
        for shard, epoch in epochs.items():
            store = self.stores.get(shard)
            if store is None or store.epoch != epoch or epoch < self.generation:
                served = None if store is None else store.epoch
                return StaleEpoch(f"shard {shard}: epoch {epoch} requested, {served} served")
        return None
