"""Events, the engine's input. Each event has its time (`at_s`); `journal` writes and reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.forecast import Forecast, MarketFeatures
from proteus_spot.bidding.market.model import Allocation, EndCause, InstanceType, Market
from proteus_spot.bidding.market.money import Micros


@dataclass(frozen=True, slots=True)
class BidEvent:
    """Something that happened at `at_s`, seconds since the epoch."""

    at_s: int


@dataclass(frozen=True, slots=True)
class JobOpened(BidEvent):
    """A job begins, with its model, the types and markets on sale, and the eviction table of its bids.

    `foresight` is None for a policy that does not use it. A job that `learns` takes the evictions of each tick from
    what is known of the markets then; `evictions` is what it starts from.
    """

    job_id: str
    job: JobModel
    policy: str
    types: Mapping[str, InstanceType]
    markets: tuple[Market, ...]
    evictions: EvictionTable
    foresight: Forecast | None = None
    learns: bool = False


@dataclass(frozen=True, slots=True)
class TickDue(BidEvent):
    """A decision point, with the present price of every market where one is known.

    With `buy` False only renewals are decided and nothing is bought: the job cannot use more now. `left_out` holds the
    markets whose prices are not fit to decide on, each with the reason; `prices` has none for them, and nothing is
    bought there. `signals` is the recent past of the markets; empty for a policy that does not use it. `spending` and
    `time_left` are None for a job without a budget or a deadline. `crossing_usd_per_vcpu_h` is what the bytes cost that
    a vCPU-hour of work exchanges with machines in another zone. `generation` is that of the state database in ids of
    orders (`orders.order_id_of`). `known` is what is known of the markets where bids decide nothing; else it is empty.
    `left_vcpus` is what the account's quotas leave, by code (`bidding.market.quotas`); one that is missing has none.
    `on_demand_spending` is that of machines that are bought on demand for the deadline; None: it has no limit.
    `speeds` are those of types that were measured.
    """

    prices: Mapping[Market, Micros]
    buy: bool = True
    left_out: Mapping[Market, str] = field(default_factory=dict)
    signals: Mapping[Market, MarketFeatures] = field(default_factory=dict)
    spending: Spending | None = None
    time_left: TimeLeft | None = None
    crossing_usd_per_vcpu_h: float = 0.0
    generation: str = ""
    known: Mapping[Market, MarketKnown] = field(default_factory=dict)
    left_vcpus: Mapping[str, int] = field(default_factory=dict)
    on_demand_spending: Spending | None = None
    speeds: Mapping[str, TypeSpeed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocationGranted(BidEvent):
    """The market granted order `order_id` (or: an earlier grant was found again).

    `instance_ids` are the market's names of the machines; empty in backtests, and where none was ever seen:
    such machines are named by the first event about each.
    """

    order_id: str
    allocation: Allocation
    instance_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationRefused(BidEvent):
    """The market refused the order; `code` is the market's."""

    order_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NoticeSeen(BidEvent):
    """The market gave notice that it will take what is left of the allocation at `takes_at_s`."""

    allocation_id: str
    takes_at_s: int


@dataclass(frozen=True, slots=True)
class AllocationGone(BidEvent):
    """What was left of the allocation ended at `at_s`: taken by the market, or terminated by the job."""

    allocation_id: str
    cause: EndCause


@dataclass(frozen=True, slots=True)
class AllocationHandedOver(BidEvent):
    """What is left of the allocation belongs to the job `to_job` from `at_s` on, which works on with it."""

    allocation_id: str
    to_job: str


@dataclass(frozen=True, slots=True)
class AllocationTaken(BidEvent):
    """The machines `instance_ids`, which the job `from_job` held, are this job's from `at_s` on.

    `allocation` is what they form here, with the time of their launch, and is named `order_id` as if that had bought
    it. `bought_for` is the job that they were bought for, which may be one before `from_job`.
    """

    order_id: str
    allocation: Allocation
    instance_ids: tuple[str, ...]
    from_job: str
    bought_for: str


@dataclass(frozen=True, slots=True)
class MachineSeen(BidEvent):
    """A machine lives, and works on.

    It was not known to belong to the allocation, or it outlived its notice, or its end was reported by mistake.
    """

    allocation_id: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class MachineNoticed(BidEvent):
    """The market gave notice that it will take one machine of the allocation at `takes_at_s`, and leaves others."""

    allocation_id: str
    instance_id: str
    takes_at_s: int


@dataclass(frozen=True, slots=True)
class MachineGone(BidEvent):
    """One machine of the allocation ended at `at_s`; the others live on, or ended otherwise."""

    allocation_id: str
    instance_id: str
    cause: EndCause


@dataclass(frozen=True, slots=True)
class MachinesUnlisted(BidEvent):
    """The market listed none of the `count` machines that live by the book, which is not believed at once."""

    count: int


@dataclass(frozen=True, slots=True)
class MarketCooled(BidEvent):
    """Machines of a market were of no use, for the reason `why`: nothing is bought there for the job's cooldown."""

    market: Market
    why: str


@dataclass(frozen=True, slots=True)
class NodesOffered(BidEvent):
    """The job offers machines for release, since its memory fits on fewer; the event replaces the offer before.

    `instance_ids` are the machines to let go. `machines` is the number of spot machines that the job has a use for;
    None: no limit.
    """

    instance_ids: tuple[str, ...]
    machines: int | None = None


@dataclass(frozen=True, slots=True)
class JobReopened(BidEvent):
    """A job that had failed, and was closed, goes on from its checkpoint."""


@dataclass(frozen=True, slots=True)
class JobClosed(BidEvent):
    """The work is done (or given up): nothing more is bought; spot allocations stay to the end of their paid hour."""
