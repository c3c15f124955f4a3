"""What of an hour is expected to be paid, and what a job model makes of it."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.billing.expected import BillingKind, hour_micros, is_refunded, paid_share
from proteus_spot.bidding.economics.equations import expected_cost_usd, useful_time_s
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies.footprint import held_part
from tests.support.markets import PROPERTY, XLARGE, spot, table, view

# what compiled callers make of them
compiled_hour_micros = compiled(lambda kind, flat, price: hour_micros(kind, flat, price), cache=False)
compiled_is_refunded = compiled(lambda kind, first_hour: is_refunded(kind, first_hour), cache=False)
compiled_paid_share = compiled(
    lambda refunded, beta, useful_s, left_s: paid_share(refunded, beta, useful_s, left_s), cache=False
)


@pytest.mark.parametrize(
    ("kind", "first", "later"),
    [
        (BillingKind.HOURLY_REFUND, True, True),
        (BillingKind.PER_SECOND, True, False),
        (BillingKind.FLAT, False, False),
    ],
)
def test_which_hours_come_back(kind: BillingKind, first: bool, later: bool) -> None:
    for function in (is_refunded, compiled_is_refunded):
        assert (function(kind, True), function(kind, False)) == (first, later)


@PROPERTY
@given(st.floats(0, 1), st.floats(0, HOUR_S), st.integers(1, HOUR_S), st.booleans())
def test_compiled_and_by_arrays_it_is_the_same_share(beta: float, median_s: float, left_s: int, refunded: bool) -> None:
    useful_s = float(useful_time_s(beta, median_s, left_s))
    share = paid_share(refunded, beta, useful_s, left_s)
    assert share == compiled_paid_share(refunded, beta, useful_s, left_s)
    assert share == paid_share(refunded, np.array([beta]), np.array([useful_s]), left_s)[0]
    assert 1.0 - beta <= paid_share(False, beta, useful_s, left_s) + 1e-12 <= 1.0 + 2e-12


def test_a_broken_hour_is_free_or_its_seconds_are_paid() -> None:
    """β of a half, after 900 s at the median: half of the hours are paid, or 2250 of 3600 s."""
    useful_s = float(useful_time_s(0.5, 900.0, HOUR_S))
    assert paid_share(True, 0.5, useful_s, HOUR_S) == 0.5
    assert paid_share(False, 0.5, useful_s, HOUR_S) == 2250 / 3600
    assert expected_cost_usd(0.5, 40_000, 8, HOUR_S) == pytest.approx(0.16)
    assert expected_cost_usd(2250 / 3600, 40_000, 8, HOUR_S) == pytest.approx(0.20)


def test_a_flat_hour_costs_the_same_at_any_price() -> None:
    for function in (hour_micros, compiled_hour_micros):
        assert [function(kind, 7, 30_000) for kind in BillingKind] == [30_000, 30_000, 7]


def test_a_job_model_knows_its_billing() -> None:
    assert JobModel().billing == "hourly-refund"
    flat = JobModel(billing="flat", flat_micros=12_000)
    assert flat.hour_micros(30_000) == 12_000
    assert JobModel.from_record(asdict(flat)) == flat
    old = {name: value for name, value in asdict(JobModel()).items() if name not in ("billing", "flat_micros")}
    assert JobModel.from_record(old) == JobModel()
    with pytest.raises(ValueError, match="billing is 'free': it must be one of hourly-refund, per-second"):
        JobModel(billing="free")
    with pytest.raises(ValueError, match="flat_micros is -1"):
        JobModel(billing="flat", flat_micros=-1)


@pytest.mark.parametrize(
    ("billing", "age_s", "decided_s", "cost_usd"),
    [
        ("hourly-refund", 1800, 1800, 4 * 0.04 * 0.75 * 0.5),
        ("per-second-first-hour-free", 1800, 1800, 4 * 0.04 * 0.75 * 0.5),
        ("per-second-first-hour-free", 1800, 5400, 4 * 0.04 * (0.75 * 5400 + 0.25 * 1200) / 3600),  # into a later hour
        ("per-second-first-hour-free", HOUR_S, HOUR_S, 4 * 0.04 * (0.75 * 3600 + 0.25 * 1200) / 3600),
        ("flat", 0, HOUR_S, 4 * 0.012 * (0.75 * 3600 + 0.25 * 1200) / 3600),
    ],
)
def test_what_is_held_costs_by_its_billing(billing: str, age_s: int, decided_s: int, cost_usd: float) -> None:
    """β is a quarter and the median 1200 s, at 0.04 $."""
    job = JobModel(billing=billing, flat_micros=12_000)
    held = spot(bid="0.05")
    here = view(held, prices={XLARGE: "0.04"}, now_s=held.launched_at_s + age_s, job=job, evictions=table())
    assert float(held_part(here, held, decided_s).cost_usd) == pytest.approx(cost_usd)
