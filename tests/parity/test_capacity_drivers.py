"""The policy `deadline` through the compiled backtest and the live engine: they hold, buy, let go and pay alike."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.capacity.elastic import run_elastic
from proteus_spot.bidding.backtest.capacity.job import CapacityJob
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.journal import from_record, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.infra.market_data.capacity_sets import find_set, read_counts
from tests.bidding.backtest.capacity.test_capacity import random_record
from tests.parity.capacity_job import LiveJob

FIT = 60


def compare(record: CapacityRecord, job: CapacityJob, start: int, fit_steps: int = FIT) -> LiveJob:
    live = LiveJob(record, job, start, fit_steps)
    row, compiled = live.run(), run_elastic(record, job, np.array([start]), fit_steps)[0]
    assert row == pytest.approx(compiled, rel=1e-9)
    return live


@given(
    seed=st.integers(0, 10_000),
    slack=st.sampled_from([1.06, 1.2, 1.5, 2.0]),
    machines=st.integers(1, 8),
    boot_s=st.sampled_from([0.0, 187.0, 360.0]),
    start=st.integers(FIT, 200),
)
@settings(max_examples=30, deadline=None)
def test_on_generated_markets(seed: int, slack: float, machines: int, boot_s: float, start: int) -> None:
    live = compare(random_record(seed, zones=4), CapacityJob(machines, 8.0, slack, boot_s), start)
    dear = any(isinstance(order, Acquire) and order.bid_micros is None for order in live.told)
    event(f"on demand: {dear}, something let go: {any(isinstance(order, Lapse) for order in live.told)}")


def test_its_journal_leads_to_the_same_orders() -> None:
    kinds = set()
    for seed, slack in ((7, 1.2), (8, 1.06), (9, 1.06)):
        live = compare(random_record(seed, zones=4), CapacityJob(6, 8.0, slack, 187.0), 80)
        orders = [item for item in live.told if isinstance(item, Acquire | Renew | Lapse | Wait)]
        kinds |= {type(order) for order in orders}
        again = BidEngine()
        events = [item for item in live.told if not isinstance(item, Acquire | Renew | Lapse | Wait)]
        assert [order for event in events for order in again.handle(from_record(to_record(event)))] == orders
    assert kinds >= {Acquire, Lapse, Wait}


@pytest.mark.parametrize(("machines", "slack", "first"), [(4, 1.5, 500), (16, 1.25, 600), (16, 1.5, 900)])
def test_on_a_record(machines: int, slack: float, first: int) -> None:
    if "PROTEUS_TRACES" not in os.environ:
        pytest.skip("PROTEUS_TRACES names no folder of records")
    record = read_counts(find_set("gcp-2025-10-h100"))
    record = replace(record, spot=record.spot.round(6), on_demand=record.on_demand.round(6))  # prices are micro-dollars
    compare(record, CapacityJob(machines, 24.0, slack, 360.0), first, fit_steps=432)
