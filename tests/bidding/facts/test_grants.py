"""The chance and the size of a grant: the last answer, the time of day, and bands that hold on days not fitted."""

import csv
import gzip
from datetime import datetime

import pytest

from proteus_spot.bidding.facts.grants import GrantOutlook, outlooks
from proteus_spot.bidding.facts.records import RequestAnswer
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from tests.support.real_traces import traces_folder

A, B = Market("a3-highgpu-1g", "us-central1-a"), Market("a3-highgpu-1g", "us-central1-b")


def test_without_an_answer_a_market_is_as_the_prior_says():
    known = outlooks((), [A], 0)[A]
    assert known.chance == pytest.approx(0.7)
    assert 0 < known.size < 1
    assert (known.answers, known.newest_s) == (0, None)


def test_the_last_answer_counts_and_the_less_the_longer_ago_it_was():
    answers = [RequestAnswer(n * 600, A, 8, 8) for n in range(50)] + [RequestAnswer(30_000, A, 8, 0)]
    soon = outlooks(answers, [A], 30_060)[A].chance
    later = outlooks(answers, [A], 30_000 + 6 * HOUR_S)[A].chance
    assert soon < 0.3
    assert later > 0.6


def test_what_is_usual_at_that_time_of_the_day_counts():
    answers = [
        RequestAnswer(day * DAY_S + hour * HOUR_S, A, 8, 0 if hour < 12 else 8)
        for day in range(20)
        for hour in range(24)
    ]
    at = [outlooks(answers, [A], 30 * DAY_S + hour * HOUR_S)[A].chance for hour in (3, 15)]
    assert at[0] < 0.3
    assert at[1] > 0.7


def test_a_market_without_an_answer_is_as_the_others():
    refused = [RequestAnswer(n * 600, A, 8, 0) for n in range(100)]
    assert outlooks(refused, [A, B], 90_000)[B].chance < 0.2


def test_a_later_answer_is_not_used():
    answers = [RequestAnswer(100, A, 8, 0), RequestAnswer(900, A, 8, 8)]
    assert outlooks(answers, [A], 200)[A].answers == 1


@pytest.mark.parametrize(("shares", "asked", "band"), [
    ((1, 0, 0, 0, 0, 0), 16, (0, 0)),
    ((0, 0, 0, 0, 0, 1), 16, (16, 16)),
    ((0.5, 0, 0, 0, 0, 0.5), 16, (0, 16)),
    ((0, 1, 0, 0, 0, 0), 16, (1, 3)),
])  # fmt: skip
def test_the_band_of_a_grant_is_that_of_its_classes(shares, asked, band):
    assert GrantOutlook(tuple(map(float, shares))).band(asked) == band


def test_nine_of_ten_grants_are_within_their_bands_on_days_that_were_not_fitted():
    """`gcp-2025-10-h100`: the bands of 7 to 10 October, an hour ahead, each from the answers before it alone."""
    answers = []
    with gzip.open(traces_folder() / "availability/gcp-2025-10-h100/launched.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            at_s = int(datetime.fromisoformat(row["timestamp"]).timestamp())
            market = Market("a3-highgpu-1g", row["zone"])
            answers.append(RequestAnswer(at_s, market, int(row["requested"]), int(row["launched"])))
    markets = sorted({answer.market for answer in answers})
    begins_s = min(answer.at_s for answer in answers) + 3 * DAY_S
    moments_s = sorted({answer.at_s for answer in answers if answer.at_s >= begins_s})[::12]
    by_moment = {(answer.at_s, answer.market): answer for answer in answers}
    within, certain = [], 0
    for at_s in moments_s:
        known = outlooks([answer for answer in answers if answer.at_s <= at_s - HOUR_S], markets, at_s)
        for market in markets:
            if (answer := by_moment.get((at_s, market))) is not None:
                low, high = known[market].band(answer.asked)
                within.append(low <= answer.granted <= high)
                certain += high - low < answer.asked
    assert len(within) > 300
    assert sum(within) / len(within) >= 0.9
    assert certain > len(within) / 3  # the bands say something
