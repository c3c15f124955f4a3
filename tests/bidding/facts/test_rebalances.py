"""What follows from rebalance recommendations, by hand."""

import json

import pytest

from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.learning import known_of, table_of
from proteus_spot.bidding.facts.rebalances import FRESH_S, AfterRebalance, after_rebalance, elevated
from proteus_spot.bidding.facts.records import Life, Rebalance, Source
from proteus_spot.bidding.facts.survival import AGES_S, Survival
from proteus_spot.bidding.market.model import HOUR_S, Market
from tests.support.market_facts import KeptFacts

A, B = Market("c5.large", "us-east-1a"), Market("c5.large", "us-east-1b")
NOW_S = 100 * HOUR_S


def life(name: str, ends_s: int, taken: bool, market: Market = A) -> Life:
    return Life(market, NOW_S - 10 * HOUR_S, ends_s, taken, instance_id=name)


def test_who_is_taken_within_the_hour_counts_and_who_is_let_go_counts_as_time():
    at_s = NOW_S - 5 * HOUR_S
    found = [Rebalance(at_s, A, name) for name in ("taken", "late", "let-go", "unknown")]
    lives = [
        life("taken", at_s + 600, taken=True),
        life("late", at_s + FRESH_S + 1, taken=True),
        life("let-go", at_s + 300, taken=False),
        life("other", at_s + 60, taken=True),
    ]
    assert after_rebalance(found, lives) == AfterRebalance(3, 1, 600 + FRESH_S + 300, at_s)


def test_the_hazard_starts_from_the_usual_one_and_is_never_below_it():
    usual = Survival(tuple(0.02 / HOUR_S for _ in AGES_S))
    assert elevated(usual, AfterRebalance()) == usual
    two_in_an_hour = elevated(usual, AfterRebalance(2, 2, float(HOUR_S)))
    assert two_in_an_hour.hazards_per_s == pytest.approx([2.02 / (2 * HOUR_S)] * len(AGES_S))
    assert elevated(usual, AfterRebalance(9, 0, 90.0 * HOUR_S)) == usual


def facts(*recommended: Rebalance) -> KeptFacts:
    """Of ten machines recommended the day before, each was taken within ten minutes."""
    names = [f"i-{number}" for number in range(10)]
    before = [Rebalance(NOW_S - 20 * HOUR_S, B, name) for name in names]
    lives = [Life(B, NOW_S - 60 * HOUR_S, NOW_S - 20 * HOUR_S + 600, True, instance_id=name) for name in names]
    return KeptFacts(lives=lives, rebalances=[*before, *recommended])


def test_a_market_with_a_fresh_recommendation_is_at_the_risk_that_was_seen():
    fresh = facts(Rebalance(NOW_S - 1200, A, "i-a"), Rebalance(NOW_S - 60, A, "i-b", Source.OWN))
    plain, known = known_of(facts(), [A, B], NOW_S), known_of(fresh, [A, B], NOW_S)
    assert (known[A].rebalances.value, known[A].rebalances.source, known[A].rebalances.age_s(NOW_S)) == (
        2,
        Source.OWN,
        60,
    )
    assert (known[A].taken_after.value, known[B].rebalances, known[B].elevated) == (1.0, None, None)
    assert known[A].survival == plain[A].survival
    assert known[A].survival_now.lives(HOUR_S) < 0.9 * plain[A].survival_now.lives(HOUR_S)
    beta, _ = table_of(known).of_bid(A, 10_000_000)
    assert beta == pytest.approx(1 - known[A].elevated.lives(HOUR_S))
    assert "rebalance recommended to 2 within the hour" in known[A].in_words()
    assert "rebalance" not in known[B].in_words()
    assert MarketKnown.from_record(json.loads(json.dumps(known[A].to_record()))) == known[A]


def test_after_an_hour_a_recommendation_tells_no_more_of_its_market():
    old = facts(Rebalance(NOW_S - FRESH_S, A, "i-a"))
    known = known_of(old, [A], NOW_S)[A]
    assert (known.rebalances, known.elevated) == (None, None)
