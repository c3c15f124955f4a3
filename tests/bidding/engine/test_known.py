"""What is known of markets in the engine: grants of a part, the table that is learnt, words, stored records."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.journal import JournalError, from_record, to_record
from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.facts.learning import known_of, prior_known, table_of
from proteus_spot.bidding.facts.records import Life
from proteus_spot.bidding.market.model import HOUR_S, Tier
from tests.support.market_facts import KeptFacts
from tests.support.markets import MARKETS, START_S, XLARGE, granted, opened, spot, tick

PRICES = {XLARGE: "0.05"}


def todays_engine():
    engine = BidEngine()
    engine.handle(replace(opened(policy="best", evictions=table_of(prior_known(MARKETS, START_S))), learns=True))
    engine.handle(granted(replace(spot("red"), tier=Tier.RELIABLE, bid_micros=None, count=1)))
    return engine


def test_a_market_that_grants_a_part_has_no_more_for_a_while():
    engine = todays_engine()
    (order,) = engine.handle(tick(START_S + 60, PRICES))
    assert isinstance(order, Acquire)
    assert order.count > 1
    engine.handle(granted(replace(spot(order.order_id, launched_at_s=START_S + 60), count=1)))
    (waits,) = engine.handle(tick(START_S + 120, PRICES))
    assert isinstance(waits, Wait)
    (again,) = engine.handle(tick(START_S + 60 + 700, PRICES))
    assert isinstance(again, Acquire)


def test_a_whole_grant_cools_nothing():
    engine = todays_engine()
    (order,) = engine.handle(tick(START_S + 60, PRICES))
    engine.handle(granted(replace(spot(order.order_id, launched_at_s=START_S + 60), count=order.count)))
    assert not engine.holdings.cooling


def test_a_job_that_learns_takes_the_evictions_of_the_tick():
    short = [Life(XLARGE, START_S - 900 * n - 600, START_S - 900 * n, taken=True) for n in range(100)]
    known = known_of(KeptFacts(lives=short), [XLARGE], START_S)
    for learns, beta in ((True, 1 - known[XLARGE].survival.lives(HOUR_S)), (False, 0.02)):
        engine = BidEngine()
        engine.handle(replace(opened(evictions=table_of(prior_known(MARKETS, START_S))), learns=learns))
        view = engine._view(replace(tick(START_S, PRICES), known=known))
        assert view.evictions.of_bid(XLARGE, 0)[0] == pytest.approx(beta, rel=0.02)
        assert view.known == known


def test_what_is_known_is_in_the_journal_and_records_of_before_it_are_read():
    due = replace(tick(START_S, PRICES), known=prior_known([XLARGE], START_S))
    record = to_record(due)
    assert from_record(record) == due
    earlier = {name: value for name, value in record.items() if name != "known"}
    assert from_record(earlier) == tick(START_S, PRICES)
    with pytest.raises(JournalError, match="signals"):
        from_record({name: value for name, value in record.items() if name != "signals"})
