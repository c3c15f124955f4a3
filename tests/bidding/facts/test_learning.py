"""What is known of a market: each figure with its source and age."""

import json

import pytest

from proteus_spot.bidding.evictions.fit_capacity import Band
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.learning import MarketPrices, known_of, prior_known, table_of
from proteus_spot.bidding.facts.records import AdvisorBand, Life, PlacementScore, RequestAnswer, Source
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from tests.support.market_facts import KeptFacts

A, B = Market("c5.large", "us-east-1a"), Market("c5.large", "us-east-1b")
NOW_S = 40 * DAY_S
FACTS = KeptFacts(
    answers=[RequestAnswer(NOW_S - 600, A, 4, 3), RequestAnswer(NOW_S - 60, A, 4, 0, "InsufficientInstanceCapacity")],
    lives=[Life(A, NOW_S - 7200, NOW_S - 3600, taken=True)],
    scores=[PlacementScore(NOW_S - 900, A, 3, 4), PlacementScore(NOW_S - 90, A, 7, 4)],
    bands=[AdvisorBand(NOW_S - DAY_S, B, Band(0.15, 0.2))],
)


def known():
    return known_of(FACTS, [A, B], NOW_S, MarketPrices({A: (20_000, NOW_S - 300)}, {"c5.large": 85_000}))


def test_each_figure_has_its_source_and_age():
    first = known()[A]
    figures = {name: getattr(first, name) for name in ("price_micros", "on_demand_micros", "share_granted", "score")}
    assert {name: (each.value, each.source, each.age_s(NOW_S)) for name, each in figures.items()} == {
        "price_micros": (20_000, Source.PRICES, 300),
        "on_demand_micros": (85_000, Source.CATALOG, None),
        "share_granted": (3 / 8, Source.OWN, 60),
        "score": (7, Source.SCORES, 90),
    }
    assert first.refused == ("InsufficientInstanceCapacity", NOW_S - 60)


def test_an_advisor_band_is_where_the_hazard_starts():
    plain = prior_known([B], NOW_S)[B].survival.lives(HOUR_S)
    assert known()[B].monthly_share.value == pytest.approx(0.175)
    assert known()[B].survival.lives(HOUR_S) > plain  # a loss in a month, not one in fifty hours


def test_it_is_a_record_and_back():
    for each in known().values():
        assert MarketKnown.from_record(json.loads(json.dumps(each.to_record()))) == each


def test_what_is_long_ago_does_not_count():
    assert known_of(FACTS, [A], NOW_S + 60 * DAY_S)[A].share_granted is None


def test_a_table_says_the_same_of_an_hour():
    table = table_of(known())
    assert not table.bids_decide
    beta, median_s = table.of_bid(A, 10_000_000)
    assert beta == pytest.approx(1 - known()[A].survival.lives(HOUR_S))
    assert 0 < median_s < HOUR_S


def test_the_words_hold_the_figures():
    words = known()[A].in_words()
    assert "placement score 7" in words
    assert "last refused by InsufficientInstanceCapacity" in words
