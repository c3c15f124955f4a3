"""The engine under `best`: what it keeps of evictions and lapses, and hands on of signals."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import NoticeSeen, TickDue
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Wait
from proteus_spot.bidding.forecast import MarketFeatures
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market
from tests.support.forecasts import foresight_of
from tests.support.markets import MARKETS, START_S, XLARGE, XLARGE_B, gone, granted, opened, reliable, spot, tick

FLAT = MarketFeatures(50_000, 50_000, 600, 0, 0, 50_000.0, 50_000.0, 50_000.0)
CALM = foresight_of(((0.2, 0.5), (0.1, 0.3), (0.01, 0.02)))
JOB = JobModel(allocation_vcpus=32, max_spot_vcpus=32, eviction_overhead_s=300)
PRICES = {XLARGE: "0.05", XLARGE_B: "0.06"}
FIRST = spot("j-buy-0", XLARGE, 8, "0.05")


def seen(at_s: int, prices: dict[Market, str] | None = None) -> TickDue:
    """Return a tick that tells the signals, too."""
    return replace(tick(at_s, prices or PRICES), signals=dict.fromkeys(MARKETS, FLAT))


@pytest.fixture
def engine() -> BidEngine:
    """An engine that holds all of the cap in one allocation."""
    engine = BidEngine()
    engine.handle(replace(opened(JOB, "best"), foresight=CALM))
    engine.handle(granted(reliable()))
    (order,) = engine.handle(seen(START_S))
    assert isinstance(order, Acquire)
    assert (order.market, order.count, order.bid_micros) == (XLARGE, 8, 50_000)
    engine.handle(granted(FIRST))
    return engine


def test_without_signals_nothing_is_bought() -> None:
    engine = BidEngine()
    engine.handle(replace(opened(JOB, "best"), foresight=CALM))
    (order,) = engine.handle(tick(START_S, PRICES))
    assert isinstance(order, Wait)
    assert "nothing is known of the recent past" in order.decision.reason


@pytest.mark.parametrize(("cause", "kind"), [(EndCause.EVICTED, Wait), (EndCause.USER, Acquire)])
def test_only_an_eviction_makes_it_wait(engine: BidEngine, cause: EndCause, kind: type) -> None:
    engine.handle(gone(FIRST.allocation_id, START_S + 600, cause))
    (order,) = engine.handle(seen(START_S + 879))
    assert isinstance(order, kind)
    (order,) = engine.handle(seen(START_S + 880))
    assert isinstance(order, Acquire), "280 s after the eviction a purchase brings work when the job goes on"


def test_of_two_evictions_the_later_one_counts_in_whatever_order_they_are_told(engine: BidEngine) -> None:
    engine.handle(granted(spot("other", XLARGE_B, 1, "0.06")))
    engine.handle(gone("other", START_S + 600))
    engine.handle(gone(FIRST.allocation_id, START_S + 500))
    (order,) = engine.handle(seen(START_S + 879))
    assert isinstance(order, Wait)


def test_what_lapses_fills_its_place_until_it_is_gone(engine: BidEngine) -> None:
    fallen = {XLARGE: "0.04", XLARGE_B: "0.06"}
    ends_s = START_S + HOUR_S
    lapse, wait = engine.handle(seen(ends_s - 100, fallen))
    assert isinstance(lapse, Lapse)
    assert "fallen below the bid" in lapse.decision.reason
    assert "all of 32 spot vCPUs are held" in wait.decision.reason
    engine.handle(gone(FIRST.allocation_id, ends_s, EndCause.USER))
    (order,) = engine.handle(seen(ends_s, fallen))
    assert isinstance(order, Acquire)
    assert order.bid_micros == 40_000


def test_what_the_market_will_take_fills_its_place_until_it_is_gone(engine: BidEngine) -> None:
    engine.handle(NoticeSeen(START_S + 600, FIRST.allocation_id, START_S + 720))
    (wait,) = engine.handle(seen(START_S + 600))
    assert "all of 32 spot vCPUs are held" in wait.decision.reason
    engine.handle(gone(FIRST.allocation_id, START_S + 660, EndCause.USER))
    (order,) = engine.handle(seen(START_S + 700))
    assert isinstance(order, Acquire)
    assert order.market == XLARGE_B, "the market that takes is left alone"


def test_what_is_told_of_a_market_that_the_job_may_not_bid_in_buys_nothing_there() -> None:
    engine = BidEngine()
    engine.handle(replace(opened(JOB, "best"), foresight=CALM, markets=(XLARGE_B,)))
    (order,) = engine.handle(seen(START_S))
    assert isinstance(order, Acquire)
    assert [c.market for c in order.decision.candidates] == [XLARGE_B]
