"""Foresights: stored and read again, refused where they are none, and their outlook by hand."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.forecast import Forecast, MarketFeatures
from proteus_spot.bidding.forecast.features import FEATURES
from proteus_spot.bidding.forecast.forecast_model import Weights
from proteus_spot.bidding.market.model import HOUR_S
from tests.support.forecasts import EDGES, foresight_of, foresights, log_odds, signals
from tests.support.markets import PROPERTY

CALM = ((0.2, 0.5), (0.1, 0.3), (0.01, 0.02))
NOTHING = np.zeros(FEATURES)


@PROPERTY
@given(foresights(), st.integers(0, FEATURES - 1))
def test_what_is_stored_is_read_again_to_the_last_bit(foresight: Forecast, feature: int) -> None:
    edges = foresight.arrays.edges.copy()
    edges[feature, -1:] = np.inf  # a feature with fewer bins
    foresight = Forecast(foresight.arrays._replace(edges=edges))
    record = json.loads(json.dumps(foresight.to_json(), allow_nan=False))
    assert Forecast.from_json(record) == foresight
    assert hash(Forecast.from_json(record)) == hash(foresight)


def test_foresights_of_other_weights_are_others() -> None:
    calm = foresight_of(CALM)
    assert calm == foresight_of(CALM)
    assert calm != foresight_of((*CALM[:2], (0.01, 0.03)))
    assert calm != CALM


GOOD = foresight_of(CALM).arrays


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"edges": EDGES[:-1]}, "do not fit together"),
        ({"weights": GOOD.weights[:, :, :, :-1]}, "do not fit together"),
        ({"intercepts": GOOD.intercepts[:-1]}, "log-odds for each delta and horizon"),
        ({"shares": np.array([0.1, 0.2, 0.3])}, "the first delta being 0"),
        ({"shares": np.array([0.0, 0.3, 0.3])}, "must rise"),
        ({"horizons_s": np.array([900.0, 1800.0])}, "the last horizon be the hour"),
        ({"horizons_s": np.array([3600.0, 3600.0])}, "must rise"),
        ({"edges": EDGES[:, ::-1]}, "must rise"),
        ({"edges": np.full_like(EDGES, np.nan)}, "must rise"),
        ({"intercepts": np.full((3, 2), np.inf)}, "must be finite"),
        ({"weights": np.full_like(GOOD.weights, np.nan)}, "must be finite"),
    ],
)
def test_parts_that_make_no_foresight_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Forecast(GOOD._replace(**changes))


@pytest.mark.parametrize(
    "change",
    [
        {"shares": None},
        {"weights": "none"},
        {"weights": 3},
        {"edges": [[1.0]]},
        {"edges": [[1.0, 2.0, 3.0]] * FEATURES},
        {"intercepts": [[1, 2], [3]]},
        {"horizons_s": [900]},
    ],
)
def test_what_is_no_foresight_is_said_in_one_line(change: dict[str, Any]) -> None:
    record = foresight_of(CALM).to_json() | change
    with pytest.raises(ValueError, match=r"^not a foresight: [^\n]*$"):
        Forecast.from_json(record)
    missing = {name: value for name, value in record.items() if name not in change}
    with pytest.raises(ValueError, match="not a foresight: "):
        Forecast.from_json(missing)


def test_the_outlook_of_a_bid_is_the_chance_within_the_hour_and_the_area_under_the_survivors() -> None:
    """A fifth are gone after 15 minutes, half after the hour."""
    beta, useful_s = foresight_of(CALM).outlook(NOTHING, 0)
    assert (beta, useful_s) == pytest.approx((0.5, 900 * 0.9 + 2700 * (0.8 + 0.5) / 2))
    beta, useful_s = foresight_of(CALM).outlook(NOTHING, 2)
    assert (beta, useful_s) == pytest.approx((0.02, 900 * 0.995 + 2700 * (0.99 + 0.98) / 2))


def test_a_later_horizon_never_has_the_lower_chance() -> None:
    beta, useful_s = foresight_of(((0.6, 0.3),), shares=(0.0,)).outlook(NOTHING, 0)
    assert (beta, useful_s) == pytest.approx((0.6, 900 * 0.7 + 2700 * 0.4))


def test_a_feature_counts_by_its_bin_and_an_edge_begins_the_bin() -> None:
    weights = np.zeros((1, 1, FEATURES, 3))
    weights[0, 0, 3] = [0.0, 1.0, 2.0]
    arrays = Weights(np.zeros(1), np.array([float(HOUR_S)]), EDGES, np.array([[log_odds(0.5)]]), weights)
    foresight = Forecast(arrays)
    chances = []
    for rises in (0.0, 0.5, 2.9, 3.0, 50.0):
        features = NOTHING.copy()
        features[3] = rises
        chances.append(foresight.outlook(features, 0)[0])
    assert chances == pytest.approx([1 / (1 + np.exp(-odds)) for odds in (0, 1, 1, 2, 2)])


@PROPERTY
@given(foresights(), signals(), st.integers(0, 2))
def test_an_outlook_is_a_chance_and_a_part_of_the_hour(foresight: Forecast, signal: MarketFeatures, delta: int) -> None:
    beta, useful_s = foresight.outlook(signal.features(100_000), delta)
    assert 0 <= beta <= 1
    assert (1 - beta) * HOUR_S - 1e-6 <= useful_s <= HOUR_S
