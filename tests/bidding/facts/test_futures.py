"""Futures of a job: cost, end, losses and the way on demand, by what is known of its markets."""

from dataclasses import replace

import numpy as np
import pytest

from proteus_spot.bidding.facts.futures import FutureJob, draw_futures
from proteus_spot.bidding.facts.grants import SHARES, GrantOutlook
from proteus_spot.bidding.facts.known import DatedFigure, MarketKnown
from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.facts.survival import AGES_S, Bursts, Survival
from proteus_spot.bidding.market.model import HOUR_S, Market

A = Market("c5.large", "us-east-1a")
JOB = FutureJob(10 * 8 * HOUR_S, 8, 1.0, 60, 20, 0.1, {"c5.large": 2})


def known(share: float = 1.0, per_h: float = 0.0, bursts: float = 0.0) -> dict[Market, MarketKnown]:
    """A market that always grants this share and takes machines at this hazard; $0.02 an hour, $0.10 on demand."""
    shares = tuple(float(each == share) for each in SHARES)
    survival = Survival((per_h / HOUR_S,) * len(AGES_S))
    price, on_demand = DatedFigure(20_000, Source.PRICES, 0), DatedFigure(100_000, Source.CATALOG)
    return {A: MarketKnown(A, 0, GrantOutlook(shares), survival, Bursts(bursts), price, on_demand)}


def drawn(job: FutureJob = JOB, count: int = 200, **market: float):
    return draw_futures(job, known(**market), count, np.random.default_rng(7))


def test_undisturbed_a_job_takes_its_work_and_costs_its_machines() -> None:
    found = drawn()
    assert found.hours == pytest.approx(10 + 20 / 3600, abs=0.01)
    assert found.cost_usd == pytest.approx(found.hours * (4 * 0.02 + 0.1))
    assert found.finished.all()
    assert not found.on_demand.any()
    assert not found.losses.any()


def test_losses_make_it_longer_and_are_as_many_as_the_hazard_says() -> None:
    found = drawn(per_h=0.5)
    assert 10 < found.hours.mean() < 12
    assert found.losses.mean() == pytest.approx(0.5 * 4 * found.hours.mean(), rel=0.15)


def test_bursts_take_as_many_machines_in_fewer_events() -> None:
    alone, together = drawn(per_h=0.5), drawn(per_h=0.5, bursts=0.9)
    assert together.losses.mean() == pytest.approx(alone.losses.mean(), rel=0.25)
    assert together.losses.std() > alone.losses.std()
    assert together.hours.mean() < alone.hours.mean()  # it stops less often


def test_a_market_that_grants_nothing_is_given_up_or_kept_by_the_deadline() -> None:
    assert not drawn(share=0.0, count=5).finished.any()
    found = drawn(replace(JOB, deadline_s=15 * HOUR_S), share=0.0, count=5)
    assert found.finished.all()
    assert found.on_demand.all()
    assert (found.hours <= 15).all()


def test_the_deadline_is_kept_whatever_spot_does() -> None:
    found = drawn(replace(JOB, deadline_s=13 * HOUR_S), share=0.125, per_h=3.0, bursts=0.5)
    assert (found.hours <= 13).all()
    assert found.on_demand.mean() > 0


def test_without_a_price_there_is_nothing_to_draw() -> None:
    bare = {A: replace(known()[A], price_micros=None)}
    with pytest.raises(ValueError, match="no market of the job has a price yet"):
        draw_futures(JOB, bare, 5, np.random.default_rng(0))


def test_a_type_that_works_half_as_fast_takes_twice_as_long() -> None:
    usual, slow = drawn(), drawn(replace(JOB, speeds={"c5.large": 0.5}))
    assert slow.hours == pytest.approx(2 * usual.hours, rel=0.01)
    assert slow.cost_usd == pytest.approx(2 * usual.cost_usd, rel=0.01)
