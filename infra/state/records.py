"""The records of the state database as immutable values, and the legal changes of state.

Times in `_s` are seconds of market time since the Unix epoch: whole if the market reported them (launches, ends,
hours), fractional if a process read its clock. Money is integer micro-dollars.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from proteus_spot.bidding.market.model import Allocation, EndCause, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.errors import InputError, ProteusError

#: A JSON object: text keys, and values that JSON can write.
Json = Mapping[str, Any]


class StoreError(ProteusError):
    """The state database refused a request, or could not be reached."""


class JournalConflict(StoreError):
    """Another process has appended to the journal since it was read; read it again and decide again."""


class IntentConflict(StoreError):
    """An order id or its token was used before for another purchase."""


class IllegalTransition(StoreError):
    """A state may not follow the present one; terminal states never change."""


class UnknownRecord(InputError):
    """There is no such job, intent or allocation."""


class ObservationKind(StrEnum):
    """What an observation of a job is about, as it is stored."""

    PROGRESS = "progress"  # clock, loss, stage and machines, at every look at the controller
    NODES = "nodes"  # the state of each node, when one changes
    SHARDS = "shards"  # the server and the backup of each shard, when one changes
    OFFER = "offer"  # the machines that the job offers for release, and the number that it can use, when they change
    TRAINING_BEGUN = "training begun"  # a controller took the job: the first, or one that has started again
    CLOCK = "clock"  # clock and state of the controller at a tick, when one changes
    FOLLOWER = "follower"  # a flow run of `train` that follows the job
    PICTURE = "picture"  # the job's picture was last made
    PAGE = "page"  # the address of the job's page in the Prefect UI
    COMMAND = "command"  # the command line that runs the job again
    TRAFFIC = "traffic"  # bytes by pair of zones, in all, and of the model, when they change
    ALARM = "alarm"  # a machine reported that it ends itself, and why
    TICK = "tick"  # why a tick of the job failed, or nothing where it did not, when that changes
    BOOKED = "booked"  # the ledger was brought up to then; at most once an hour
    WENT_ON = "went on"  # a job that a limit had stopped goes on; which model it had saved then
    QUEUED = "queued"  # when the job was submitted to its queue, by the Prefect server's clock
    TOOK_OVER = "took over"  # it is the job's turn in its queue: it has what it takes over of the jobs before
    SETTLED = "settled"  # an ended job has no machine and no unbooked hour left


class JobState(StrEnum):
    """The state of a job, as its controller reports it; the last three are terminal.

    Only `infra.state.job_tables.JobTables.reopen_job` leads out of one of those: a job that failed, or that a
    limit stopped, may start again.
    """

    STARTING = "starting"
    WAITING = "waiting"  # no worker left; continues automatically when one joins
    RUNNING = "running"
    STOPPING = "stopping"  # a stop was requested
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        """Whether no state may follow."""
        return self in _JOB_END


class JobKind(StrEnum):
    """What a row of `jobs` is."""

    JOB = "job"  # a training job
    SWEEP = "sweep"  # trials of hyper-parameters, each on a machine of its own


class IntentState(StrEnum):
    """The state of an intent: recorded before the market is called, settled by its answer.

    Machines that are found of an order that was refused or abandoned correct that: it is done.
    """

    PLANNED = "planned"
    DONE = "done"
    REFUSED = "refused"
    ABANDONED = "abandoned"


_JOB_END = frozenset({JobState.FINISHED, JobState.STOPPED, JobState.FAILED})
_JOB_LIVE = frozenset({JobState.STARTING, JobState.WAITING, JobState.RUNNING})

#: State -> the states that may follow. A restarted controller begins again at `starting`; a stop is never taken back.
JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        **{state: (_JOB_LIVE - {state}) | {JobState.STOPPING} | _JOB_END for state in sorted(_JOB_LIVE)},
        JobState.STOPPING: _JOB_END,
        **{state: frozenset() for state in sorted(_JOB_END)},
    }
)


@dataclass(frozen=True, slots=True)
class Job:
    """A training job or a sweep: its spec, the address of a training's controller, and how it ended.

    `stop_why`, `stop_by` and `stop_at_s` are of the first request to stop it; `stop_now` says that one of the requests
    wanted its machines ended at once.
    """

    job_id: str
    spec: Json
    state: JobState
    created_at_s: float
    ended_at_s: float | None = None
    controller_address: str | None = None
    result: Json | None = None
    failure: str | None = None
    stop_why: str | None = None
    stop_by: str | None = None
    stop_at_s: float | None = None
    stop_now: bool = False
    kind: JobKind = JobKind.JOB


@dataclass(frozen=True, slots=True)
class Entry:
    """An event or order for the journal.

    `at_s` is when it happened, `known_at_s` when it became known; `record` is its `bidding.engine.journal.to_record`.
    """

    direction: Literal["event", "order"]
    at_s: float
    known_at_s: float
    record: Json


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A stored entry; `seq` counts from 0 without gaps within a job."""

    job_id: str
    seq: int
    direction: Literal["event", "order"]
    at_s: float
    known_at_s: float
    record: Json


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The engine of a job after the first `seq` entries of its journal.

    `program` is the digest of the program that wrote it, `opened_seq` the entry that opened the job, and `engine` its
    `bidding.engine.snapshot.to_snapshot`.
    """

    job_id: str
    seq: int
    program: str
    opened_seq: int
    engine: Json


@dataclass(frozen=True, slots=True)
class Intent:
    """An order to the market. `token` makes repeating it harmless; None if nothing is bought.

    `request` is the request as it is sent, the same at every repetition; None before the first. `doubtful_since_s` is
    when it became unknown whether the request has bought machines; None while that is known. `answer` is the last error
    of the market: its code, message and class (`bidding.market.failures.Failure`), and `at_s`.
    """

    order_id: str
    job_id: str
    kind: str
    token: str | None
    params: Json
    state: IntentState
    planned_at_s: float
    outcome: Json | None = None
    settled_at_s: float | None = None
    request: Json | None = None
    doubtful_since_s: float | None = None
    answer: Json | None = None


@dataclass(frozen=True, slots=True)
class InstanceLife:
    """The end that `count` machines of an allocation share; None while they live."""

    count: int
    ended_at_s: int | None
    end_cause: EndCause | None

    def alive_at(self, at_s: int) -> bool:
        """Return whether the machines were held at `at_s`; a machine that ends in that second was not.

        Machines whose launch failed were never held.
        """
        if self.end_cause is EndCause.FAILED:
            return False
        return self.ended_at_s is None or self.ended_at_s > at_s

    def taken_within(self, from_s: int, until_s: int) -> bool:
        """Return whether the machines were evicted in [from_s, until_s)."""
        was_evicted = self.end_cause is EndCause.EVICTED
        return was_evicted and self.ended_at_s is not None and from_s <= self.ended_at_s < until_s


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """An allocation with the market's ids of its instances, and its end.

    `instance_ends` holds (ended_at_s, cause) by instance id, for instances whose end was observed; the others end with
    the allocation. Machines that the job took over from another have `bought_for`, the job that they were bought for,
    and `held_from_s`, since when they are held and paid by this one; both are None where they were bought for it.
    """

    job_id: str
    allocation: Allocation
    instance_ids: tuple[str, ...]
    order_id: str
    ended_at_s: int | None = None
    end_cause: EndCause | None = None
    instance_ends: Mapping[str, tuple[int, EndCause]] = field(default_factory=dict)
    bought_for: str | None = None
    held_from_s: int | None = None

    @property
    def since_s(self) -> int:
        """Since when the job holds the machines: their launch, or when it took them over."""
        return self.allocation.launched_at_s if self.held_from_s is None else self.held_from_s

    @property
    def allocation_id(self) -> str:
        """The allocation's id."""
        return self.allocation.allocation_id

    @property
    def alive(self) -> bool:
        """Whether the allocation is still held."""
        return self.ended_at_s is None

    @property
    def living_ids(self) -> list[str]:
        """The instances that live, as far as it is known."""
        return [name for name in self.instance_ids if name not in self.instance_ends] if self.alive else []

    @property
    def living_count(self) -> int:
        """Number of instances that live, as far as it is known."""
        return sum(life.count for life in self.lives if life.ended_at_s is None)

    @property
    def ends(self) -> dict[str, tuple[int, EndCause]]:
        """(ended_at_s, cause) of each instance that has ended, by itself or with the allocation."""
        if self.ended_at_s is None or self.end_cause is None:
            return dict(self.instance_ends)
        return dict.fromkeys(self.instance_ids, (self.ended_at_s, self.end_cause)) | dict(self.instance_ends)

    @property
    def machines(self) -> list[InstanceLife]:
        """The life of each instance, in the order of `instance_ids`; all alike if the market did not name them."""
        names = [*self.instance_ids, *[""] * (self.allocation.count - len(self.instance_ids))]
        ends = [self.instance_ends.get(name, (self.ended_at_s, self.end_cause)) for name in names]
        return [InstanceLife(1, ended_at_s, cause) for ended_at_s, cause in ends]

    @property
    def lives(self) -> list[InstanceLife]:
        """The lives of the instances, grouped by their end; the counts add up to the allocation's."""
        ends: Counter[tuple[int | None, EndCause | None]] = Counter(self.instance_ends.values())
        ends[self.ended_at_s, self.end_cause] += self.allocation.count - ends.total()
        return [InstanceLife(count, *end) for end, count in ends.items() if count]


class LedgerKind(StrEnum):
    """The kind of a ledger line."""

    CHARGE = "charge"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """Money for one billing hour of an allocation: a charge is positive, a refund negative. Lines are never edited.

    What becomes known after they were booked is corrected by further lines: `correction` counts those of a kind.

    `at_s` is when the line was due, or if seconds are billed, when their hour began; `price_micros` is the hourly price
    of one instance.
    """

    job_id: str
    allocation_id: str
    hour_index: int
    kind: LedgerKind
    at_s: int
    price_micros: Micros
    amount_micros: Micros
    note: str = ""
    correction: int = 0

    @property
    def entry_id(self) -> str:
        """Unique id of the line; an hour has at most one charge and one refund, and numbered corrections of each."""
        line = f"{self.allocation_id}/{self.hour_index}/{self.kind}"
        return f"{line}/{self.correction}" if self.correction else line


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of a job's progress (loss, footprint, dollars), for the report."""

    job_id: str
    at_s: float
    kind: ObservationKind
    payload: Json


def market_columns(allocation: Allocation) -> dict[str, Any]:
    """Return the columns of the allocations table that describe `allocation`."""
    return {
        "allocation_id": allocation.allocation_id,
        "tier": str(allocation.tier),
        "instance_type": allocation.market.instance_type,
        "zone": allocation.market.zone,
        "count": allocation.count,
        "bid_micros": allocation.bid_micros,
        "launched_at_s": allocation.launched_at_s,
    }


def allocation_from_columns(row: Mapping[str, Any]) -> Allocation:
    """Return the allocation that `market_columns` wrote."""
    return Allocation(
        allocation_id=row["allocation_id"],
        market=Market(row["instance_type"], row["zone"]),
        count=row["count"],
        launched_at_s=row["launched_at_s"],
        tier=Tier(row["tier"]),
        bid_micros=row["bid_micros"],
    )
