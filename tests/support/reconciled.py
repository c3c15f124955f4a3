"""An engine that is compared with facts of the market."""

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationGranted, BidEvent, MachineSeen, NoticeSeen
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from tests.support.markets import START_S, XLARGE, fact, gone, granted, opened, reliable, spot, tick

NOW_S = START_S + 1800
STANDINGS = (None, *AllocationState)


def engine_with(standing: AllocationState | None, name: str = "a") -> BidEngine:
    """Return an engine in which allocation `name` stands so; None: it was never heard of."""
    engine = BidEngine()
    engine.handle(opened(JobModel(max_spot_vcpus=0)))
    engine.handle(granted(reliable()))
    if standing is None:
        return engine
    engine.handle(granted(spot(name, count=1, bid="9")))
    match standing:
        case AllocationState.NOTICED:
            engine.handle(NoticeSeen(START_S + 60, name, START_S + 180))
        case AllocationState.LAPSING:
            engine.handle(tick(START_S + HOUR_S - 60, {XLARGE: "3"}))
        case AllocationState.GONE:
            engine.handle(gone(name, START_S + 60))
    assert engine.holdings.positions[name].standing is standing
    return engine


RED = fact("red", 0, bid=None)
REDS = (RED, fact("red", 1, bid=None))
LIVES = fact("a")
NOTICED = fact("a", notice_at_s=NOW_S + 120)
EVICTED = fact("a", ended_at_s=NOW_S - 5, cause=EndCause.EVICTED)
LET_GO = fact("a", ended_at_s=NOW_S - 5, cause=EndCause.USER)
GRANT = AllocationGranted(NOW_S, "a", spot("a", count=1), ("i-a-0",))
SEEN = MachineSeen(NOW_S, "a", "i-a-0")
NOTICE = NoticeSeen(NOW_S, "a", NOW_S + 120)
TAKEN, ENDED = (gone("a", NOW_S - 5, cause) for cause in (EndCause.EVICTED, EndCause.USER))


def pair(*events: BidEvent) -> BidEngine:
    """Return an engine that holds the machines i-a-0 and i-a-1 in allocation a, after `events`."""
    engine = engine_with(None)
    engine.handle(granted(spot("a", count=2, bid="9")))
    for one in events:
        engine.handle(one)
    return engine


def working(engine: BidEngine) -> int:
    """Return the machines of allocation a in the footprint."""
    return sum(a.count for a in engine.holdings.footprint if a.allocation_id == "a")


OTHER = fact("a", 1)
