"""The contract of every `EvictionPredictor`, and of the `PredictorModel` that holds them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.evictions.base import as_table
from proteus_spot.bidding.evictions.calibration import calibrate
from proteus_spot.bidding.evictions.lifetimes import grants_s
from proteus_spot.bidding.evictions.neural.revpred import RevPred, corrected
from proteus_spot.bidding.evictions.neural.tributary import Tributary
from proteus_spot.bidding.evictions.predictors.base import CannotFit
from proteus_spot.bidding.evictions.predictors.names import PREDICTORS, predictor_class
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel, fit_predictors
from proteus_spot.bidding.evictions.predictors.training_limits import border_limits, is_passed, random_limits
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.synthetic.renewal_market import LIVELY, generate
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import read_model, write_model
from tests.bidding.evictions.naive import trace
from tests.support.predictors import chance

MARKET, YOUNG, UNKNOWN = (Market("c4.large", f"us-east-1{zone}") for zone in "abc")
FIT, LATER = TimeWindow(0, 5 * DAY_S), TimeWindow(5 * DAY_S, 7 * DAY_S)


def prices() -> TraceSet:
    """A lively market, and one whose prices begin half a day before the end of the fit."""
    lively = generate({MARKET: 100_000}, 0, 7 * DAY_S, np.random.default_rng(1), climate=LIVELY)[MARKET]
    begin_s = FIT.until_s - DAY_S // 2
    return TraceSet({MARKET: lively, YOUNG: trace((begin_s, 20_000), (begin_s + 9_000, 90_000))})


@dataclass(frozen=True)
class Fitted:
    name: str
    traces: TraceSet
    model: PredictorModel

    @property
    def trace(self) -> Trace:
        return self.traces[MARKET]


@pytest.fixture(scope="module", params=PREDICTORS)
def fitted(request: pytest.FixtureRequest) -> Iterator[Fitted]:
    """The model of each name, with little training."""
    with pytest.MonkeyPatch.context() as patch:
        for network in (RevPred, Tributary):
            patch.setattr(network, "moments", 512)
            patch.setattr(network, "epochs", 12)
        traces = prices()
        yield Fitted(request.param, traces, fit_predictors(request.param, traces, FIT, seed=3))


def bids(found: Fitted, *, border: bool = False) -> tuple[np.ndarray, np.ndarray]:
    at_s = grants_s(found.trace, LATER.from_s, LATER.until_s)[::20]
    limits = border_limits(found.trace, at_s) if border else random_limits(found.trace, at_s, np.random.default_rng(7))
    return at_s, limits


def probabilities(found: Fitted, model: PredictorModel | None = None) -> np.ndarray:
    at_s, limits = bids(found)
    return (model or found.model).predict_proba(found.traces, MARKET, at_s, limits)


def test_a_probability_is_one_and_that_of_one_bid_is_the_same(fitted: Fitted) -> None:
    found = probabilities(fitted)
    assert found.shape == bids(fitted)[0].shape
    assert ((found >= 0) & (found <= 1)).all()
    at_s, limits = bids(fitted)
    one = chance(fitted.model, fitted.traces, MARKET, int(at_s[3]), int(limits[3]))
    assert one == pytest.approx(found[3], abs=1e-5)


def test_many_markets_are_answered_for_at_once_as_one_by_one(fitted: Fitted) -> None:
    predictors = {**fitted.model.predictors, YOUNG: predictor_class(fitted.name)()}
    model = replace(fitted.model, predictors=predictors)
    asked = ((MARKET, 20_000), (YOUNG, 10_000), (MARKET, 150_000), (YOUNG, -1))
    for at_s in (LATER.from_s, LATER.from_s + 12_345):
        limits = np.array([int(fitted.traces[market].price_at(at_s) or 0) + above for market, above in asked])
        found = model.of_markets(fitted.traces, [market for market, _ in asked], at_s, limits)
        for (market, _), limit, answer in zip(asked, limits, found, strict=True):
            alone = model.predict_proba(fitted.traces, market, np.array([at_s]), np.array([limit]))
            assert answer == pytest.approx(alone[0], abs=1e-5)
        assert found[-1] == 1, "below the price"


def test_it_foretells_later_days_better_than_the_share_of_evictions_does(fitted: Fitted) -> None:
    if fitted.name in ("table", "none"):
        pytest.skip("knows nothing of the present")
    at_s, limits = bids(fitted, border=fitted.name == "revpred")
    came = is_passed(fitted.trace, at_s, limits)
    found = fitted.model.predict_proba(fitted.traces, MARKET, at_s, limits)
    assert np.mean((found - came) ** 2) < 0.75 * came.var()


def test_later_prices_are_not_seen(fitted: Fitted) -> None:
    leaps = np.flatnonzero(np.diff(fitted.trace.prices_micros) > 100_000)[-3:]
    assert len(leaps) == 3
    for at_s in (fitted.trace.times_s[leaps + 1] - 60).tolist():
        seen = fitted.trace.times_s <= at_s
        ended = TraceSet({MARKET: Trace(fitted.trace.times_s[seen], fitted.trace.prices_micros[seen])})
        limit = int(ended[MARKET].prices_micros[-1]) + 20_000
        known, unknown = (chance(fitted.model, each, MARKET, at_s, limit) for each in (fitted.traces, ended))
        assert known == unknown


def test_a_fit_reads_its_window_alone_and_its_seed_repeats_it(fitted: Fitted) -> None:
    inside = fitted.trace.times_s <= FIT.until_s
    changed = Trace(fitted.trace.times_s, np.where(inside, fitted.trace.prices_micros, 77_777))
    kind = predictor_class(fitted.name)
    first, again = (kind().fit(each, FIT, 11).save() for each in (fitted.trace, changed))
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_a_model_is_read_back_to_the_last_bit(fitted: Fitted, tmp_path: Path) -> None:
    write_model(tmp_path / "a.npz", fitted.model)
    again = read_model(tmp_path / "a.npz")
    assert isinstance(again, PredictorModel)
    assert (again.name, again.fitted, again.without) == (fitted.name, FIT, fitted.model.without)
    assert np.array_equal(probabilities(fitted, again), probabilities(fitted))
    write_model(tmp_path / "b.npz", again)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_damaged_weights_are_refused_in_one_line(fitted: Fitted, tmp_path: Path) -> None:
    header, arrays = fitted.model.header(), fitted.model.arrays()
    for weights in [name for name in arrays if name.startswith("0/")]:
        for value in (arrays[weights][:-1], np.full(arrays[weights].shape, np.nan)):
            with pytest.raises(ValueError, match=weights.removeprefix("0/")):
                PredictorModel.from_record(header, arrays | {weights: value})
    for key, value in (("schema", 2), ("name", "x"), ("predictors", 3), ("mean", {})):
        with pytest.raises(ValueError):
            PredictorModel.from_record(header | {key: value}, arrays)
    (tmp_path / "m.npz").write_bytes(b"no zip")
    with pytest.raises(InputError, match=r"m\.npz: is not an eviction model"):
        read_model(tmp_path / "m.npz")


def test_a_limit_below_the_price_is_passed_and_a_market_without_prices_is_refused(fitted: Fitted) -> None:
    at_s, _ = bids(fitted)
    price = fitted.trace.price_at(int(at_s[0]))
    assert price is not None
    assert chance(fitted.model, fitted.traces, MARKET, int(at_s[0]), price - 1) == 1
    for market, moment in ((UNKNOWN, int(at_s[0])), (YOUNG, 0)):
        with pytest.raises(ValueError, match="has no price"):
            chance(fitted.model, fitted.traces, market, moment, 10**6)


def test_a_market_that_cannot_be_fitted_uses_the_table_and_says_why(fitted: Fitted) -> None:
    if fitted.name == "none":
        pytest.skip("fits nothing")
    if fitted.name == "table":
        assert set(fitted.model.predictors) == {MARKET, YOUNG}
        return
    assert set(fitted.model.predictors) == {MARKET}
    assert "minutes of prices" in fitted.model.without[YOUNG]
    at_s = np.array([FIT.until_s - 4000, FIT.until_s - 4000])
    found = fitted.model.predict_proba(fitted.traces, YOUNG, at_s, np.array([90_000, 90_100]))
    assert found.tolist() == (1 - fitted.model.mean.survival(YOUNG, [0, 100], HOUR_S)).tolist()


def test_as_an_eviction_model_it_says_the_same(fitted: Fitted) -> None:
    model, deltas = fitted.model, np.array([0, 1_000, 150_000])
    at_s, _ = bids(fitted)
    states = model.states(MARKET, fitted.trace, at_s, deltas)
    hour = 1 - model.survival(MARKET, deltas, HOUR_S, states)
    limits = np.array([[fitted.trace.price_at(int(moment)) for moment in at_s]]).T + deltas
    said = model.predict_proba(fitted.traces, MARKET, np.repeat(at_s, 3), limits.ravel()).reshape(hour.shape)
    assert np.abs(hour - said).max() <= 0.0026
    curve = model.survival(MARKET, 1_000, np.arange(0, 3 * HOUR_S, 300), states[0, 1])
    assert curve[0] == 1
    assert (np.diff(curve) <= 0).all()
    table = as_table(model)
    assert all(low >= high for low, high in zip(table.rows[MARKET], table.rows[MARKET][1:], strict=False))
    (checked,) = calibrate(model, fitted.traces, LATER, horizons_s=[HOUR_S], deltas_micros=[1_000, 50_000])
    assert checked.forecasts > 0
    assert checked.brier < 1


def test_formula_3_undoes_the_class_weights() -> None:
    shares, truth = np.array([0.02, 0.3, 0.9]), np.array([0.001, 0.2, 0.97])
    for positives in shares:
        weighted = truth * (1 - positives) / (truth * (1 - positives) + (1 - truth) * positives)
        assert corrected(weighted, float(positives)) == pytest.approx(truth)


def test_prices_that_tell_nothing_are_refused() -> None:
    calm = Trace(np.array([0]), np.array([20_000]))
    for name in ("logistic", "tributary", "revpred"):
        with pytest.raises(CannotFit, match="none of the"):
            predictor_class(name)().fit(calm, FIT, 0)
    with pytest.raises(ValueError, match="want table, logistic, tributary, revpred, none"):
        predictor_class("oracle")
