"""Small markets, jobs and allocations for the tests of the bidding core, and hypothesis strategies for them."""

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, JobOpened, TickDue
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import (
    HOUR_S,
    ORDER_TAG,
    Allocation,
    EndCause,
    InstanceFact,
    InstanceState,
    InstanceType,
    Market,
    Tier,
)
from proteus_spot.bidding.market.money import Micros, to_micros
from proteus_spot.bidding.policies.base import MarketView

#: How a property is tried: often enough, and not against a clock that others share.
PROPERTY = settings(max_examples=60, deadline=None)
#: Midday of some day; nothing depends on which.
START_S = 1_456_833_600
DELTAS = (100, 10_000, 400_000)

TYPES: Mapping[str, InstanceType] = {
    kind.name: kind
    for kind in (
        InstanceType("c4.large", 2, 3.75, to_micros("0.10")),
        InstanceType("c4.xlarge", 4, 7.5, to_micros("0.20")),
        InstanceType("m4.2xlarge", 8, 32.0, to_micros("0.44")),
        InstanceType("r3.8xlarge", 32, 244.0, to_micros("2.66")),
    )
}
MARKETS = tuple(sorted(Market(name, zone) for name in TYPES for zone in ("us-east-1a", "us-east-1b")))
LARGE, XLARGE = Market("c4.large", "us-east-1a"), Market("c4.xlarge", "us-east-1a")
XLARGE_B, BIG = Market("c4.xlarge", "us-east-1b"), Market("r3.8xlarge", "us-east-1a")


def table(
    rows: Mapping[Market, tuple[tuple[float, float], ...]] | None = None, beta: float = 0.25, median_s: float = 1200.0
) -> EvictionTable:
    """Return a table in which each delta of every market has (`beta`, `median_s`), or what `rows` say."""
    flat = {market: ((beta, median_s),) * len(DELTAS) for market in MARKETS}
    return EvictionTable(DELTAS, flat | dict(rows or {}))


def spot(
    name: str = "a", market: Market = XLARGE, count: int = 4, bid: str = "0.30", launched_at_s: int = START_S
) -> Allocation:
    """Return a transient allocation that was bid for."""
    return Allocation(name, market, count, launched_at_s, Tier.TRANSIENT, to_micros(bid))


def reliable(name: str = "red", market: Market = XLARGE, count: int = 2, launched_at_s: int = START_S) -> Allocation:
    """Return an on-demand allocation of the reliable tier."""
    return Allocation(name, market, count, launched_at_s, Tier.RELIABLE)


def view(
    *footprint: Allocation,
    prices: Mapping[Market, str] | None = None,
    now_s: int = START_S,
    job: JobModel | None = None,
    evictions: EvictionTable | None = None,
    cooling: frozenset[Market] = frozenset(),
) -> MarketView:
    """Return a view; `prices` are dollars."""
    micros = {market: to_micros(price) for market, price in (prices or {}).items()}
    return MarketView(now_s, job or JobModel(), micros, TYPES, footprint, evictions or table(), cooling)


def opened(
    job: JobModel | None = None, policy: str = "proteus", evictions: EvictionTable | None = None, job_id: str = "j"
) -> JobOpened:
    """Return the event that opens a job over all of `MARKETS`."""
    return JobOpened(START_S, job_id, job or JobModel(), policy, TYPES, MARKETS, evictions or table())


def tick(at_s: int, prices: Mapping[Market, str]) -> TickDue:
    """Return a tick; `prices` are dollars."""
    return TickDue(at_s, {market: to_micros(price) for market, price in prices.items()})


def granted(allocation: Allocation, at_s: int | None = None) -> AllocationGranted:
    """Return the grant of the order that `allocation` is called after; its machines are those of `fact`."""
    name = allocation.allocation_id
    machines = tuple(f"i-{name}-{number}" for number in range(allocation.count))
    return AllocationGranted(allocation.launched_at_s if at_s is None else at_s, name, allocation, machines)


def gone(name: str, at_s: int, cause: EndCause = EndCause.EVICTED) -> AllocationGone:
    """Return the end of an allocation."""
    return AllocationGone(at_s, name, cause)


def fact(
    order_id: str,
    number: int = 0,
    *,
    market: Market = XLARGE,
    bid: Micros | None = 300_000,
    launched_at_s: int = START_S,
    notice_at_s: int | None = None,
    ended_at_s: int | None = None,
    cause: EndCause | None = None,
) -> InstanceFact:
    """Return what the market says of an instance: it runs, unless it has ended."""
    state = InstanceState.RUNNING if cause is None else InstanceState.TERMINATED
    return InstanceFact(
        f"i-{order_id}-{number}",
        market,
        state,
        launched_at_s,
        bid,
        "token",
        {ORDER_TAG: order_id},
        notice_at_s=notice_at_s,
        ended_at_s=ended_at_s,
        end_cause=cause,
    )


PROBABILITIES = st.floats(0, 1)
CELLS = st.tuples(PROBABILITIES, st.floats(0, HOUR_S))


def tables() -> st.SearchStrategy[EvictionTable]:
    """Return tables that know some of `MARKETS`."""
    row = st.tuples(*[CELLS] * len(DELTAS))
    return st.builds(EvictionTable, st.just(DELTAS), st.dictionaries(st.sampled_from(MARKETS), row, max_size=8))


def price_maps(most: Micros = 3_000_000) -> st.SearchStrategy[dict[Market, Micros]]:
    """Return prices of some of `MARKETS`."""
    return st.dictionaries(st.sampled_from(MARKETS), st.integers(1, most), max_size=8)


def jobs() -> st.SearchStrategy[JobModel]:
    """Return jobs of all sizes."""
    return st.builds(
        JobModel,
        scaling_efficiency=st.floats(0.1, 1),
        resize_overhead_s=st.floats(0, 600),
        eviction_overhead_s=st.floats(0, 2000),
        allocation_vcpus=st.integers(1, 128),
        max_spot_vcpus=st.integers(0, 256),
        renewal_lead_s=st.integers(1, 600),
        cooldown_s=st.integers(0, 1200),
        ceiling_on_demand=st.booleans(),
        reliable_works=st.booleans(),
    )


@st.composite
def allocations(draw: st.DrawFn, name: str = "a") -> Allocation:
    """Return an allocation of either tier, launched within two hours before `START_S`."""
    tier = draw(st.sampled_from(Tier))
    return Allocation(
        name,
        draw(st.sampled_from(MARKETS)),
        draw(st.integers(1, 16)),
        START_S - draw(st.integers(0, 2 * HOUR_S)),
        tier,
        None if tier is Tier.RELIABLE else draw(st.integers(1, 3_000_000)),
    )


@st.composite
def views(draw: st.DrawFn) -> MarketView:
    """Return views of up to three allocations."""
    held = tuple(draw(allocations(name)) for name in "abc"[: draw(st.integers(0, 3))])
    cooling = frozenset(draw(st.sets(st.sampled_from(MARKETS), max_size=2)))
    paid = {a.allocation_id: a.hour_ends_at_s(START_S) + HOUR_S for a in held if draw(st.booleans())}
    return MarketView(
        START_S, draw(jobs()), draw(price_maps()), TYPES, held, draw(tables()), cooling, paid, draw(price_maps())
    )
