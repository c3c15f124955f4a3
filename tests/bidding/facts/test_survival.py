"""How long machines live: hazards by age, pooling, bursts, and bands that hold on days that were not fitted."""

import json
from itertools import groupby
from math import log

import pytest

from proteus_spot.bidding.facts.records import Life
from proteus_spot.bidding.facts.survival import PRIOR_PER_H, Survival, bursts, survivals
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from tests.support.count_bands import count_band, shape_of
from tests.support.real_traces import availability_files

A, B, C = (Market("p3.2xlarge", f"us-west-2{letter}") for letter in "abc")
#: Length of the spans whose losses are counted, in seconds.
_SPAN_S = 6 * HOUR_S


def hazard_per_s(survival: Survival, age_s: float) -> float:
    """Return the hazard of a machine of this age."""
    return -log(survival.lives(1.0, age_s))


def test_without_a_fact_a_market_starts_from_the_prior():
    known = survivals((), [A], {A: 0.5})[A]
    assert hazard_per_s(known, 0) == pytest.approx(0.5 / HOUR_S)
    assert survivals((), [B])[B].lives(HOUR_S) == pytest.approx(2.718281828**-PRIOR_PER_H)


def test_much_exposure_outweighs_the_prior_and_little_does_not():
    many = [Life(A, n * DAY_S, n * DAY_S + HOUR_S, taken=True) for n in range(200)]
    known = survivals(many, [A, B])
    assert hazard_per_s(known[A], HOUR_S - 1) == pytest.approx(1 / 3000, rel=0.01)
    assert hazard_per_s(known[A], HOUR_S - 1) > hazard_per_s(known[B], HOUR_S - 1) > PRIOR_PER_H / HOUR_S
    assert hazard_per_s(known[A], 2 * DAY_S) == pytest.approx(PRIOR_PER_H / HOUR_S)
    assert (known[A].losses, known[A].exposure_s) == (200, 200 * HOUR_S)


def test_a_market_of_which_nothing_is_known_is_as_those_of_its_type():
    lost = [Life(A, n * DAY_S, n * DAY_S + 7200, taken=True) for n in range(50)]
    other = Market("m5.large", "us-west-2a")
    known = survivals(lost, [B, other])
    assert known[B].lives(3 * HOUR_S) < known[other].lives(3 * HOUR_S)


def test_a_machine_that_was_let_go_counts_as_time_without_a_loss():
    kept = [Life(A, 0, 10 * DAY_S, taken=False)]
    assert survivals(kept, [A])[A].lives(DAY_S) > survivals((), [A])[A].lives(DAY_S)


def test_the_curve_is_the_product_of_its_parts():
    known = survivals([Life(A, 0, 5 * HOUR_S, taken=True)], [A])[A]
    whole = known.lives(30 * HOUR_S)
    assert whole == pytest.approx(known.lives(4 * HOUR_S) * known.lives(26 * HOUR_S, 4 * HOUR_S))


def test_losses_within_three_minutes_are_one_burst():
    together = [Life(A, 0, 5000 + n, taken=True) for n in range(4)] + [Life(A, 0, 20_000, taken=False)] * 4
    alone = [Life(B, 0, 5000, taken=True), *[Life(B, 0, 90_000, taken=False)] * 7]
    assert bursts(together).lost == 4
    assert bursts(together).share > bursts(alone).share
    assert bursts(together).size(1) == 1
    assert bursts(()).size(3) == 2


def test_others_are_those_that_were_there_at_the_first_loss():
    ends = [Life(A, 0, 5000, taken=True), Life(A, 5000, 9000, taken=False), Life(A, 4000, 5000, taken=False)]
    absent = [Life(A, 5001, 9000, taken=False), Life(A, 0, 4999, taken=False)]
    assert bursts(ends + absent) == bursts(ends)
    assert (bursts(ends).count, bursts(ends).share) == (1, 1 / 4)


def test_a_band_of_counts_holds_its_share_of_a_poisson_count():
    assert count_band(4.0, 1e6) == (1, 8)
    assert count_band(0.0, 3.0) == (0, 0)
    low, high = count_band(4.0, 0.5)
    assert (low, high > 16) == (0, True)
    assert shape_of([3, 3, 3], [3.0, 3.0, 3.0]) == 1000
    assert shape_of([0, 0, 12], [4.0, 4.0, 4.0]) < 2


@pytest.mark.parametrize("name", ["preemption-2023-04", "aws-2022-10"])
def test_nine_of_ten_counts_of_losses_are_within_their_bands_on_days_that_were_not_fitted(name):
    """The first half of each record is fitted; the losses of each six hours of the rest are counted."""
    lives, ends_s = [], {}
    for market, path in availability_files(name):
        record = json.loads(path.read_text())
        gap_s = record["metadata"]["gap_seconds"]
        lives += _lives(market, record["data"], gap_s)
        ends_s[market] = gap_s * len(record["data"])
    early = [_cut(life, ends_s[life.market] // 2) for life in lives if life.launched_at_s < ends_s[life.market] // 2]
    known = survivals(early, sorted(ends_s))
    shape = shape_of(*_counts(early, known, {market: (0, end_s // 2) for market, end_s in ends_s.items()}))
    counts, means = _counts(lives, known, {market: (end_s // 2, end_s) for market, end_s in ends_s.items()})
    within = [low <= count <= high for count, mean in zip(counts, means, strict=True)
              for low, high in [count_band(mean, shape)]]  # fmt: skip
    assert len(within) > 20
    assert sum(within) / len(within) >= 0.9


def _lives(market, data, gap_s):
    found, at = [], 0
    for up, steps in groupby(data, key=bool):
        count = len(list(steps))
        if up:
            found.append(Life(market, at * gap_s, (at + count) * gap_s, taken=at + count < len(data)))
        at += count
    return found


def _cut(life, at_s):
    return life if life.until_s <= at_s else Life(life.market, life.launched_at_s, at_s, taken=False)


def _counts(lives, known, windows):
    """Return the losses of each span of each market's window, and how many were expected, given what ran in it."""
    counts, means = [], []
    for market, (from_s, until_s) in windows.items():
        for begins_s in range(from_s, until_s - _SPAN_S + 1, _SPAN_S):
            ends_s = begins_s + _SPAN_S
            there = [life for life in lives if life.market == market and life.launched_at_s < ends_s
                     and life.until_s > begins_s]  # fmt: skip
            counts.append(sum(life.taken and begins_s < life.until_s <= ends_s for life in there))
            means.append(sum(_expected(known[market], life, begins_s, ends_s) for life in there))
    return counts, means


def _expected(survival, life, begins_s, ends_s):
    """Return the cumulative hazard of a machine over what it lived in a span."""
    total, step_s = 0.0, 300
    for at_s in range(max(life.launched_at_s, begins_s), min(life.until_s, ends_s), step_s):
        lasts_s = min(step_s, life.until_s - at_s, ends_s - at_s)
        total += hazard_per_s(survival, at_s - life.launched_at_s) * lasts_s
    return total
