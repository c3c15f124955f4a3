"""The `Policy` Protocol, its input `MarketView`, and its output: a `Decision` with its reason and candidates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.forecast import Forecast, MarketFeatures
from proteus_spot.bidding.market.model import Allocation, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import Micros


@dataclass(frozen=True, slots=True)
class MarketView:
    """Everything that a decision may depend on, at `now_s`.

    Attributes
    ----------
    prices : current price by market; markets without one are absent.
    types : the types on sale, with their on-demand price.
    footprint : held allocations that will continue to work (noticed and lapsing ones are excluded).
    paid_until_s : end of the last hour that was decided, by allocation id; absent: the hour in progress.
    last_prices : the last price seen, for allocations in a market without a present price.
    cooling : markets that are not bought in for now: they refused recently, or will take what they sold.
    signals : the recent past of each market, for policies that use it.
    foresight : the forecast that weighs the signals; None if none was fitted.
    lapsing : allocations whose end was ordered, and which work to the end of their hour.
    last_eviction_s : time of the market's last eviction; None before the first.
    crossing_usd_per_vcpu_h : cost of the bytes that a vCPU-hour of work exchanges with machines in another zone.
    offered : ids of allocations whose machines the job offers for release, all of them.
    machines : number of spot machines that the job has a use for; None: no limit.
    time_left : the work left before the deadline; None: there is none.
    known : what is known of each market where bids decide nothing; else empty.
    noticed : allocations, or the parts of them, that the market will take; they count in the cap until they are gone.
    markets : those that the job may buy in, on demand also where there is no spot price.
    on_demand_cooling : markets that are not bought in on demand for now.
    on_demand_room_vcpus : vCPUs that may be bought on demand, by the cap and by the account's quota.
    beyond_quota : markets in which the account's quota for spot leaves no machine.
    on_demand_spending : what machines on demand have cost and may cost, against their limit; None: there is none.
    speeds : how fast a vCPU of a type works, where that was measured; 1 elsewhere.
    """

    now_s: int
    job: JobModel
    prices: Mapping[Market, Micros]
    types: Mapping[str, InstanceType]
    footprint: tuple[Allocation, ...]
    evictions: EvictionTable
    cooling: frozenset[Market] = frozenset()
    paid_until_s: Mapping[str, int] = field(default_factory=dict)
    last_prices: Mapping[Market, Micros] = field(default_factory=dict)
    signals: Mapping[Market, MarketFeatures] = field(default_factory=dict)
    foresight: Forecast | None = None
    lapsing: tuple[Allocation, ...] = ()
    last_eviction_s: int | None = None
    crossing_usd_per_vcpu_h: float = 0.0
    noticed: tuple[Allocation, ...] = ()
    offered: frozenset[str] = frozenset()
    machines: int | None = None
    time_left: TimeLeft | None = None
    known: Mapping[Market, MarketKnown] = field(default_factory=dict)
    markets: tuple[Market, ...] = ()
    on_demand_cooling: frozenset[Market] = frozenset()
    on_demand_room_vcpus: int = 0
    beyond_quota: frozenset[Market] = frozenset()
    on_demand_spending: Spending | None = None
    speeds: Mapping[str, TypeSpeed] = field(default_factory=dict)

    def crossing_usd(self, market: Market) -> float:
        """Return what a vCPU-hour of work in a market costs in bytes between zones: 0 where the reliable tier is."""
        if not self.crossing_usd_per_vcpu_h:
            return 0.0
        zones = {allocation.market.zone for allocation in self.footprint if allocation.tier is Tier.RELIABLE}
        return self.crossing_usd_per_vcpu_h if zones and market.zone not in zones else 0.0

    @property
    def spot_vcpus(self) -> int:
        """The vCPUs held on the transient tier."""
        return self._spot_vcpus(self.footprint)

    @property
    def spot_machines(self) -> int:
        """The number of machines held on the transient tier."""
        return sum(allocation.count for allocation in self.footprint if allocation.tier is Tier.TRANSIENT)

    @property
    def noticed_vcpus(self) -> int:
        """The vCPUs of the transient tier that the market will take."""
        return self._spot_vcpus(self.noticed)

    @property
    def left_vcpus(self) -> int:
        """The vCPUs that the cap leaves; negative where machines were found that exceed it."""
        return self.job.max_spot_vcpus - self.spot_vcpus - self.noticed_vcpus

    def _spot_vcpus(self, held: tuple[Allocation, ...]) -> int:
        return sum(map(self.vcpus_of, (a for a in held if a.tier is Tier.TRANSIENT)))

    def vcpus_of(self, allocation: Allocation) -> int:
        """Return the vCPUs of all of the allocation's instances."""
        return allocation.count * self.size_of(allocation.market)

    def work_of(self, market: Market) -> float:
        """Return the vCPUs of the usual speed that a machine of `market` works as."""
        speed = self.speeds.get(market.instance_type)
        return self.size_of(market) * (1.0 if speed is None else speed.value)

    def size_of(self, market: Market) -> int:
        """Return the vCPUs of a machine of `market`."""
        return self.job.size(self.types[market.instance_type])


class Choice(StrEnum):
    """Kind of a decision."""

    ACQUIRE = "acquire"
    WAIT = "wait"
    RENEW = "renew"
    LAPSE = "lapse"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible purchase, the footprint's cost with it, and the reason why it was not chosen.

    `cost_per_work` is the footprint's E with the candidate in it, dollars per unit of work. Machines that are bought
    `on_demand` have no bid.
    """

    market: Market
    count: int
    price_micros: Micros
    delta_micros: Micros
    eviction_prob: float
    cost_usd: float
    work: float
    cost_per_work: float
    why_not: str = ""
    on_demand: bool = False

    @property
    def bid_micros(self) -> Micros:
        """The bid: the price and the bid delta above it."""
        return self.price_micros + self.delta_micros


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason.

    Attributes
    ----------
    cost_per_work : E of the footprint if nothing is changed (for a renewal: if it lapses); may be infinite.
    candidates : the candidates weighed, best first; the chosen one, if any, is the first.
    """

    verdict: Choice
    reason: str
    cost_per_work: float
    candidates: tuple[Candidate, ...] = ()

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that is bought."""
        return self.candidates[0] if self.verdict is Choice.ACQUIRE else None


@dataclass(frozen=True, slots=True)
class MachineRelease:
    """`count` machines of an allocation to let go before its hour ends, with the reason."""

    allocation_id: str
    count: int
    decision: Decision


class Planner(Protocol):
    """Decisions of a job over all of its machines; the same view gets the same ones."""

    def purchases(self, view: MarketView) -> tuple[Decision, ...]:
        """Return what is bought now, ACQUIRE each with a chosen candidate; else one WAIT."""
        ...

    def releases(self, view: MarketView) -> tuple[MachineRelease, ...]:
        """Return the machines to let go now; asked where seconds are paid."""
        ...

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return RENEW or LAPSE for the hour that begins when `allocation`'s present one ends."""
        ...


class Policy(Protocol):
    """Decisions of a job that buys in one market at a time; the same view gets the same decision."""

    def acquisition(self, view: MarketView) -> Decision:
        """Return ACQUIRE with a chosen candidate, or WAIT."""
        ...

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return RENEW or LAPSE for the hour that begins when `allocation`'s present one ends."""
        ...
