"""The engine of a job or a sweep: its journal is replayed once; events and orders are appended in one transaction.

The orders of the engine are in the database (journal and intents) before they are carried out, and their outcome is
written in the same transaction that updates the tables. A writer that loses a race for the journal replays it again and
decides again.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

import proteus_spot.bidding
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationHandedOver,
    AllocationRefused,
    AllocationTaken,
    BidEvent,
    JobOpened,
    JobReopened,
    MachineGone,
    MachineSeen,
)
from proteus_spot.bidding.engine.journal import JournalError, catch_up, from_record, replay, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, client_token
from proteus_spot.bidding.engine.reconcile import ABANDONED, ReconciledHoldings, is_failed_launch_of
from proteus_spot.bidding.engine.snapshot import SnapshotError, from_snapshot, to_snapshot
from proteus_spot.bidding.market.failures import Failure
from proteus_spot.bidding.market.model import EndCause, InstanceFact
from proteus_spot.bidding.tuning import sweep_journal
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import SweepExtended, SweepOpened, SweepReopened
from proteus_spot.bidding.tuning.sweep_orders import Deploy, SweepOrder
from proteus_spot.infra.state.records import (
    EngineSnapshot,
    Entry,
    IntentState,
    JobKind,
    JournalConflict,
    Json,
    UnknownRecord,
)
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.task_runtime import current_runtime

logger = logging.getLogger(__name__)

#: Number of journal entries after which a commit writes a snapshot of the engine: some thirty ticks. Each tick replays
#: what follows the snapshot, decisions included, which by then costs as much as to write one.
SNAPSHOT_ENTRIES = 64


class JournalledEngine(Protocol):
    """What the journal needs of an engine."""

    @property
    def holdings(self) -> ReconciledHoldings:
        """What it holds by the events so far."""
        ...

    def handle(self, event: Any) -> tuple[Any, ...]:
        """Apply one event; return the orders, in sequence."""

    def validate(self) -> None:
        """Raise an error if the state breaks an invariant."""


E = TypeVar("E", bound=JournalledEngine)

#: Returns the events to enter, given the engine's state.
DecideEvents = Callable[[E], Sequence[BidEvent]]


class EngineJournal(ABC, Generic[E]):
    """The engine of a row of `jobs` in this process, loaded once and passed from step to step of a flow run.

    The journal is replayed when the engine is first used, from the newest snapshot of this program on; later only the
    entries that other processes have written since are read. Nothing is kept here that the journal does not hold: a run
    that is killed loses a copy. What kind of engine it is, and how its events are written, is for the subclass.

    Parameters
    ----------
    job_id : the job; it need not be opened, nor recorded.

    Notes
    -----
    It belongs to one thread. It is a plain class, because Prefect looks for futures inside of the collections,
    dataclasses and models among a task's arguments, and would walk through the engine at every step.
    """

    #: Kind of the record that opens the job.
    opening: ClassVar[str]

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._engine: E | None = None
        #: Number of journal entries that the engine has seen, and that the newest snapshot covers.
        self._length = 0
        self._snapshot_length = 0
        #: Number of the entry that opened the job.
        self._opened_seq: int | None = None

    @abstractmethod
    def _replayed(self, records: Sequence[Json]) -> E:
        """Return the engine that the events among `records` lead to."""

    @abstractmethod
    def _catch_up(self, engine: E, records: Sequence[Json]) -> None:
        """Apply the events among `records`, which follow those that `engine` has seen."""

    @abstractmethod
    def _to_record(self, item: Any) -> dict[str, Any]:
        """Return an event or an order as a JSON object."""

    @abstractmethod
    def _to_snapshot(self, engine: E) -> Json | None:
        """Return the state of an engine without the event that opened it; None: its journal is replayed whole."""

    @abstractmethod
    def _from_snapshot(self, state: Json, opened: Json) -> E:
        """Return the engine that `_to_snapshot` saw; `opened` is the record of the event that opened it."""

    def cached(self) -> E:
        """Return the engine as the last step left it, without reading the database; load it if it was not yet."""
        return self._engine if self._engine is not None else self.refresh()

    def refresh(self) -> E:
        """Return the engine as the journal leaves it now; entries that other processes have written are read."""
        engine, self._engine = self._engine, None  # one that fails in the middle cannot be used
        if engine is None:
            self._opened_seq = None
            engine, self._length = self._restored()
            self._snapshot_length = self._length
        records = [entry.record for entry in current_runtime().store.journals.entries(self.job_id, self._length)]
        self._note_opened(records)
        if engine is not None:
            self._catch_up(engine, records)
        else:
            engine = self._replayed(records)
        self._length += len(records)
        self._engine = engine
        return engine

    def _restored(self) -> tuple[E | None, int]:
        """Return the engine of the newest snapshot and the number of entries it covers; None without one."""
        store = current_runtime().store
        snapshot = store.journals.snapshot(self.job_id)
        if snapshot is None or snapshot.program != program_digest():
            return None, 0
        try:
            opened = store.journals.entry(self.job_id, snapshot.opened_seq).record
            if opened.get("kind") != self.opening:
                raise SnapshotError(f"snapshot: entry {snapshot.opened_seq} opens no job")
            engine = self._from_snapshot(snapshot.engine, opened)
        except (SnapshotError, JournalError, UnknownRecord) as error:
            logger.warning("job %s: its journal is replayed whole: %s", self.job_id, error)
            return None, 0
        self._opened_seq = snapshot.opened_seq
        return engine, snapshot.seq

    def _note_opened(self, records: Sequence[Json]) -> None:
        """Note which of `records`, which follow those that the engine has seen, opened the job."""
        if self._opened_seq is None:
            seqs = (seq for seq, record in enumerate(records, self._length) if record.get("kind") == self.opening)
            self._opened_seq = next(seqs, None)

    def commit(self, plan: DecideEvents[E], instances: Mapping[str, Sequence[InstanceFact]] | None = None) -> list[Any]:
        """Pass the events of `plan` to the engine, record events and orders, and return the orders.

        Parameters
        ----------
        plan : returns the events, given the engine's state; called again if another process wrote meanwhile.
        instances : the market's records of the instances, by order id, of which the events tell.
        """
        (orders,) = commit_together([(self, plan)], instances)
        return orders

    def prepare(self, plan: DecideEvents[E], now_s: float) -> "Pending[E]":
        """Pass the events of `plan` to the engine; return what is to be written, before the engine is used again."""
        engine = self.refresh()
        self._engine = None  # until it is committed it is ahead of the journal: one that fails is loaded again
        entries: list[Entry] = []
        events = list(plan(engine))
        orders: list[Any] = []
        for event in events:
            entries.append(Entry("event", float(event.at_s), now_s, self._to_record(event)))
            for order in engine.handle(event):
                orders.append(order)
                entries.append(Entry("order", float(event.at_s), now_s, self._to_record(order)))
        engine.validate()
        return Pending(engine, events, orders, entries)

    def write(self, store: Store, pending: "Pending[E]", instances: Mapping[str, Sequence[InstanceFact]]) -> None:
        """Write entries, and what follows from them, in a transaction."""
        now_s = current_runtime().clock.now_s()
        if pending.entries:
            store.journals.append(self.job_id, self._length, pending.entries)
        for order in pending.orders:
            _decide(store, self.job_id, order, now_s)
        for event in pending.events:
            _settle(store, self.job_id, event, instances, now_s)
        self._note_opened([entry.record for entry in pending.entries])
        pending.snapshot = self._due_snapshot(pending.engine, self._length + len(pending.entries))
        if pending.snapshot is not None:
            store.journals.save_snapshot(pending.snapshot)

    def take(self, pending: "Pending[E]") -> None:
        """Take over the engine of entries that are written."""
        if pending.snapshot is not None:
            self._snapshot_length = pending.snapshot.seq
        self._length += len(pending.entries)
        self._engine = pending.engine

    def _due_snapshot(self, engine: E, length: int) -> EngineSnapshot | None:
        """Return the snapshot of an engine that has seen `length` entries, if it is time for one."""
        if self._opened_seq is None or length - self._snapshot_length < SNAPSHOT_ENTRIES:
            return None
        try:
            state = self._to_snapshot(engine)
        except SnapshotError as error:  # the journal holds it all
            logger.error("job %s: no snapshot of its engine: %s", self.job_id, error)
            return None
        if state is None:
            return None
        return EngineSnapshot(self.job_id, length, program_digest(), self._opened_seq, state)


@dataclass(slots=True)
class Pending(Generic[E]):
    """An engine that is ahead of its journal, with the events, orders and entries that are still to be written."""

    engine: E
    events: list[BidEvent]
    orders: list[Any]
    entries: list[Entry]
    snapshot: EngineSnapshot | None = None


def commit_together(
    plans: Sequence[tuple[EngineJournal[Any], DecideEvents[Any]]],
    instances: Mapping[str, Sequence[InstanceFact]] | None = None,
) -> list[list[Any]]:
    """Commit to several journals in one transaction, all or none; return the orders of each (`EngineJournal.commit`).

    Parameters
    ----------
    plans : each journal with its plan, which are called in this sequence.
    """
    runtime = current_runtime()
    contended = retry_if_exception_type(JournalConflict)
    for attempt in Retrying(
        retry=contended, stop=stop_after_attempt(8), wait=wait_random_exponential(0.02, 0.5), reraise=True
    ):
        with attempt:
            now_s = runtime.clock.now_s()
            prepared = [(journal, journal.prepare(plan, now_s)) for journal, plan in plans]
            with runtime.store.transaction() as store:
                for journal, pending in prepared:
                    journal.write(store, pending, instances or {})
            for journal, pending in prepared:
                journal.take(pending)
    return [pending.orders for _, pending in prepared]


class JobEngine(EngineJournal[BidEngine]):
    """The engine of a training job and its journal."""

    opening = JobOpened.__name__

    def _replayed(self, records: Sequence[Json]) -> BidEngine:
        return replay(records)

    def _catch_up(self, engine: BidEngine, records: Sequence[Json]) -> None:
        catch_up(engine, records)

    def _to_record(self, item: Any) -> dict[str, Any]:
        return to_record(item)

    def _to_snapshot(self, engine: BidEngine) -> Json:
        return to_snapshot(engine)

    def _from_snapshot(self, state: Json, opened: Json) -> BidEngine:
        event = from_record(opened)
        assert isinstance(event, JobOpened)
        return from_snapshot(state, event)


class SweepJournal(EngineJournal[SweepEngine]):
    """The engine of a sweep and its journal, which is replayed whole."""

    opening = SweepOpened.__name__

    def _replayed(self, records: Sequence[Json]) -> SweepEngine:
        return sweep_journal.replay(records)

    def _catch_up(self, engine: SweepEngine, records: Sequence[Json]) -> None:
        sweep_journal.catch_up(engine, records)

    def _to_record(self, item: Any) -> dict[str, Any]:
        return sweep_journal.to_record(item)

    def _to_snapshot(self, engine: SweepEngine) -> None:
        return None

    def _from_snapshot(self, state: Json, opened: Json) -> SweepEngine:
        raise SnapshotError("snapshot: a sweep has none")


def journal_of(job_id: str) -> EngineJournal[Any]:
    """Return the journal of a job or a sweep, whichever the row is; a job's where it is not recorded."""
    job = current_runtime().store.jobs.find_job(job_id)
    return SweepJournal(job_id) if job is not None and job.kind is JobKind.SWEEP else JobEngine(job_id)


@cache
def program_digest() -> str:
    """Return the digest of the sources that decide: another program might reach another state."""
    digest = sha256()
    sources = Path(proteus_spot.bidding.__path__[0])
    for path in sorted(sources.rglob("*.py")):
        digest.update(f"{path.relative_to(sources).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _decide(store: Store, job_id: str, order: Order | SweepOrder, now_s: float) -> None:
    """Record the order as an intent, if it has to be carried out."""
    match order:
        case Acquire() | Deploy():
            params = {"market": str(order.market), "count": order.count, "bid_micros": order.bid_micros}
            token = client_token(current_runtime().owner, order.order_id)
            store.purchases.plan(order.order_id, job_id, "acquire", token, params, now_s)
        case Lapse():
            params = {"allocation_id": order.allocation_id, "hour": order.hour, "before_s": order.before_s}
            order_id = f"{order.allocation_id}-lapse-{order.hour}"
            if order.instance_ids:  # others may be ended before the same hour
                part = sha256(",".join(order.instance_ids).encode()).hexdigest()[:8]
                order_id, params = f"{order_id}-part-{part}", params | {"instance_ids": list(order.instance_ids)}
            store.purchases.plan(order_id, job_id, "lapse", None, params, now_s)


def _settle(
    store: Store, job_id: str, event: BidEvent, instances: Mapping[str, Sequence[InstanceFact]], now_s: float
) -> None:
    """Update the tables by the event."""
    match event:
        case AllocationGranted():
            allocation = event.allocation
            params = {
                "market": str(allocation.market),
                "count": allocation.count,
                "bid_micros": allocation.bid_micros,
            }
            intent = store.purchases.find_intent(event.order_id)
            if intent is None:  # an unrecorded purchase: its tags are ours, so it is adopted
                token = client_token(current_runtime().owner, event.order_id)
                store.purchases.plan(event.order_id, job_id, "found", token, params, now_s)
            ids = list(event.instance_ids)
            store.purchases.record_allocation(job_id, event.order_id, allocation, ids)
            if intent is None or intent.state is not IntentState.DONE:
                store.purchases.settle(event.order_id, IntentState.DONE, {"instances": ids}, now_s)
        case AllocationRefused():
            outcome = {"code": event.code, "message": event.message}
            state = IntentState.ABANDONED if event.code == ABANDONED else IntentState.REFUSED
            store.purchases.settle(event.order_id, state, outcome, now_s)
        case MachineSeen():
            store.purchases.record_instance(event.allocation_id, event.instance_id)
        case MachineGone():
            store.purchases.record_instance_ends(event.allocation_id, {event.instance_id: (event.at_s, event.cause)})
            _note_failed_launch(store, event.allocation_id, instances, now_s)
            _settle_lapses(store, job_id, event, now_s)
        case AllocationGone():
            store.purchases.end_allocation(event.allocation_id, event.at_s, event.cause)
            _note_failed_launch(store, event.allocation_id, instances, now_s)
            _settle_lapses(store, job_id, event, now_s)
        case AllocationHandedOver():
            store.purchases.end_allocation(event.allocation_id, event.at_s, EndCause.USER)
            _settle_lapses(store, job_id, event, now_s)
        case AllocationTaken():
            _record_taken(store, job_id, event, now_s)
        case JobReopened() | SweepReopened() | SweepExtended():
            store.jobs.reopen_job(job_id, has_more=isinstance(event, SweepExtended))
        case JobOpened():
            return


def _record_taken(store: Store, job_id: str, event: AllocationTaken, now_s: float) -> None:
    """Record machines that were taken over as if an order had bought them: those of the reliable tier follow it."""
    allocation, ids = event.allocation, list(event.instance_ids)
    params = {"market": str(allocation.market), "count": allocation.count, "bid_micros": allocation.bid_micros}
    store.purchases.plan(event.order_id, job_id, "taken", None, params, now_s)
    store.purchases.settle(event.order_id, IntentState.DONE, {"instances": ids}, now_s)
    store.purchases.record_allocation(job_id, event.order_id, allocation, ids, (event.bought_for, event.at_s))


def _settle_lapses(
    store: Store, job_id: str, event: MachineGone | AllocationGone | AllocationHandedOver, now_s: float
) -> None:
    """Note as done the orders to end machines of the event's allocation of which none lives any more."""
    living = {name for record in store.purchases.allocations(job_id, alive=True) for name in record.living_ids}
    for intent in store.purchases.intents(job_id, [IntentState.PLANNED]):
        if intent.kind != "lapse" or intent.params["allocation_id"] != event.allocation_id:
            continue
        ending = intent.params.get("instance_ids")
        if not isinstance(event, MachineGone) or (ending is not None and living.isdisjoint(ending)):
            store.purchases.settle(intent.order_id, IntentState.DONE, {"ended_at_s": event.at_s}, now_s)


def _note_failed_launch(
    store: Store, order_id: str, instances: Mapping[str, Sequence[InstanceFact]], now_s: float
) -> None:
    """Record why machines of an order were of no use, if any were: the reason is shown, and it is not bought soon."""
    failed = next((f for f in instances.get(order_id, ()) if is_failed_launch_of(f, int(now_s))), None)
    if failed is None:
        return
    reason, message = failed.end_reason, "the market accepted the launch, and the machine never ran"
    if failed.end_cause is not EndCause.FAILED:
        message = f"{failed.instance_id} ended by itself soon after its launch; its console log says why"
    answer = {"code": reason, "message": message, "failure": str(Failure.CONFIGURATION), "at_s": now_s}
    if reason.startswith("Server."):
        answer["failure"] = str(Failure.CAPACITY)
    store.purchases.note_answer(order_id, answer)
    logger.warning("%s: %s: %s", order_id, reason, message)


def unless_seen(kind: type[BidEvent], event: BidEvent) -> DecideEvents[BidEngine]:
    """Return the plan that enters `event` unless the engine has seen one of its kind."""

    def plan(engine: BidEngine) -> Sequence[BidEvent]:
        seen = engine.holdings.job_id is not None if kind is JobOpened else engine.holdings.closed
        return () if seen else (event,)

    return plan
