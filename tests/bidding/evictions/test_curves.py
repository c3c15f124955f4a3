"""Survival curves: look-up in Python and compiled, what follows from them, and what is not a model."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from proteus_spot.bidding.evictions.base import EvictionModel, as_table, beta, median_s
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import HORIZONS_S, Curves
from proteus_spot.bidding.evictions.fit_survival import fit_survival, fit_table, of_table
from proteus_spot.bidding.evictions.states import one_state
from proteus_spot.bidding.evictions.table import DELTAS_MICROS, EvictionTable, fit
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from tests.bidding.evictions.naive import MARKET, OTHER, trace
from tests.support.markets import PROPERTY, tables

CURVES = Curves(
    np.array([0, 100]), np.array([0, 60, 120]), np.array([[[[1.0, 0.5, 0.25], [1.0, 0.9, 0.8]]]]), np.array([1])
)
MODEL = CurveModel("survival", (MARKET,), TimeWindow(0, 7200), CURVES, one_state(1), np.full((1, 1, 2), 9))


def test_between_two_horizons_the_curve_is_a_line_and_beyond_the_last_its_mean_hazard_goes_on() -> None:
    lived = MODEL.survival(MARKET, 0, [0, 30, 60, 90, 120, 240])
    assert lived.tolist() == [1.0, 0.75, 0.5, 0.375, 0.25, 0.0625]


def test_a_bid_between_two_deltas_counts_as_the_lower_one() -> None:
    assert MODEL.survival(MARKET, [-1, 0, 99, 100, 9999], 60).tolist() == [0.0, 0.5, 0.5, 0.9, 0.9]


def test_arguments_broadcast() -> None:
    assert MODEL.survival(MARKET, np.array([[0], [100]]), [0, 60, 120]).shape == (2, 3)
    assert MODEL.survival(OTHER, np.array([[0], [100]]), [0, 60, 120]).tolist() == [[1.0] * 3] * 2, "not known"
    assert MODEL.survival(OTHER, [0, 100], 60, [0, 0]).shape == (2,)


@pytest.mark.parametrize("ahead", [-1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(ahead: float) -> None:
    with pytest.raises(ValueError, match="time ahead"):
        MODEL.survival(MARKET, 0, ahead)


@pytest.mark.parametrize("state", [-1, 1])
def test_a_state_that_is_none_is_refused(state: int) -> None:
    with pytest.raises(IndexError, match="none of the model's 1"):
        MODEL.survival(MARKET, 0, 60, state)


def test_beta_and_the_median_follow_from_the_curve() -> None:
    assert beta(MODEL, MARKET, 0, within_s=60) == 0.5
    assert median_s(MODEL, MARKET, 0, within_s=120) == 45.0, "half of 0.75 is at 0.375 of the first line's 0.5"
    assert median_s(MODEL, OTHER, 0) == 3600.0
    assert median_s(MODEL, MARKET, -1) == 0.0


@PROPERTY
@given(table=tables())
def test_the_papers_table_becomes_curves_of_the_same_betas(table: EvictionTable) -> None:
    model: EvictionModel = of_table(table)
    for market in table.markets:
        betas = [table.lookup(market, index)[0] for index in range(len(table.deltas_micros))]
        expected = np.minimum.accumulate(betas)
        assert beta(model, market, table.deltas_micros) == pytest.approx(expected, abs=1e-12)
        lived = model.survival(market, np.array(table.deltas_micros)[:, None], np.array(HORIZONS_S))
        assert (np.diff(lived, axis=1) <= 0).all()
        assert (np.diff(lived, axis=0) >= 0).all()


def test_half_of_the_evictions_of_a_table_come_before_its_median() -> None:
    model = of_table(EvictionTable((100,), {MARKET: ((0.6, 900.0),)}))
    assert model.survival(MARKET, 100, [0, 450, 900, 2250, 3600, 7200]) == pytest.approx(
        [1, 0.85, 0.7, 0.55, 0.4, 0.16]
    )
    assert median_s(model, MARKET, 100) == pytest.approx(900)
    assert as_table(model, (100,)).lookup(MARKET, 0) == pytest.approx((0.6, 900))


def test_a_fitted_table_is_the_papers_to_the_last_bit() -> None:
    found = TraceSet({MARKET: trace((0, 20_000), (4000, 30_000), (9000, 20_000), (20_000, 500_000))})
    model, table = fit_table(found, TimeWindow(0, 30_000)), fit(found, 0, 30_000)
    said = [table.lookup(MARKET, index)[0] for index in range(25)]
    assert beta(model, MARKET, DELTAS_MICROS).tolist() == pytest.approx(said, abs=1e-15)
    assert (model.name, model.n_states, model.fitted) == ("table", 1, TimeWindow(0, 30_000))
    assert (model.grants == (30_000 - HOUR_S) // 60 + 1).all()


def changed(**changes: object) -> CurveModel:
    return replace(MODEL, curves=CURVES._replace(**changes))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: changed(survival=CURVES.survival[..., :2]), "of shape"),
        (lambda: changed(survival=CURVES.survival * 2), "outside"),
        (lambda: changed(survival=CURVES.survival * np.nan), "outside"),
        (lambda: changed(survival=CURVES.survival[..., ::-1]), "must fall"),
        (lambda: changed(survival=CURVES.survival[..., ::-1, :]), "must fall"),
        (lambda: changed(deltas_micros=np.array([100, 100])), "deltas must rise"),
        (lambda: changed(horizons_s=np.array([-1, 60, 120])), "horizons must rise"),
        (lambda: changed(known=np.ones(2, np.int64)), "one row a market"),
        (lambda: replace(MODEL, markets=(MARKET, OTHER)), "of shape"),
        (lambda: TimeWindow(5, 5), "after it begins"),
    ],
)
def test_what_is_no_model_is_refused(make, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        make()


def test_windows_that_touch_do_not_overlap() -> None:
    parts = [TimeWindow(low, high) for low, high in pairwise((0, 10, 20))]
    assert not parts[0].overlaps(parts[1])
    assert not parts[1].overlaps(parts[0])
    assert parts[0].overlaps(TimeWindow(9, 11))


def test_a_model_is_its_record_to_the_last_bit() -> None:
    model = fit_survival(TraceSet({MARKET: trace((0, 20_000), (4000, 30_000))}), TimeWindow(0, 30_000))
    again = CurveModel.from_record(model.header(), model.arrays())
    assert again == model
    assert again.curves.survival.tobytes() == model.curves.survival.tobytes()
    assert again != replace(model, notes={"a": 1})
    assert again != replace(model, grants=model.grants + 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 2}, "schema 2; this program reads 1"),
        ({"markets": ["x"]}, "not a market"),
        ({"fitted": [3, 1]}, "after it begins"),
        ({"fitted": 3}, "not an eviction model"),
        ({"notes": None}, "not an eviction model"),
    ],
)
def test_a_record_that_holds_no_model_is_refused(change: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CurveModel.from_record(MODEL.header() | change, MODEL.arrays())


@pytest.mark.parametrize("name", [*MODEL.arrays()])
def test_a_record_that_lacks_an_array_or_has_one_of_another_shape_is_refused(name: str) -> None:
    arrays = MODEL.arrays()
    with pytest.raises(ValueError):
        CurveModel.from_record(MODEL.header(), {key: value for key, value in arrays.items() if key != name})
    with pytest.raises(ValueError):
        CurveModel.from_record(MODEL.header(), arrays | {name: np.zeros((1, 1, 1, 1, 1))})


def test_markets_must_be_sorted() -> None:
    two = Curves(CURVES.deltas_micros, CURVES.horizons_s, np.repeat(CURVES.survival, 2, axis=0), np.ones(2, np.int64))
    with pytest.raises(ValueError, match="sorted"):
        CurveModel("survival", (OTHER, MARKET), None, two, one_state(2), np.zeros((2, 1, 2), np.int64))
    assert Market("a", "b") not in MODEL.markets
