"""Forecasts and features for tests: hypothesis strategies, and a forecast with given probabilities."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from proteus_spot.bidding.forecast import Forecast, MarketFeatures
from proteus_spot.bidding.forecast.features import FEATURES, LOOKBACK_S
from proteus_spot.bidding.forecast.forecast_model import Weights
from proteus_spot.bidding.market.model import HOUR_S

#: Where the bins of the features begin: in places that prices of tests pass.
EDGES = np.array(
    [
        [60.0, 1200.0],  # age
        [0.2, 0.9],  # share of on-demand
        [-0.001, 0.001],  # last step
        [0.5, 3.0],
        [0.5, 3.0],
        [-0.2, 0.2],
        [-0.2, 0.2],
        [-0.2, 0.2],
    ]
)


def log_odds(chance: float) -> float:
    """Return ln(p / (1 - p))."""
    return float(np.log(chance / (1 - chance)))


def foresight_of(
    chances: Sequence[Sequence[float]],
    shares: Sequence[float] = (0.0, 0.1, 1.0),
    horizons_s: Sequence[int] = (900, HOUR_S),
) -> Forecast:
    """Return a foresight in which no signal tells anything: `chances` by bid delta, then by horizon, each in (0, 1)."""
    intercepts = np.array([[log_odds(chance) for chance in row] for row in chances])
    weights = np.zeros((len(shares), len(horizons_s), FEATURES, EDGES.shape[1] + 1))
    return Forecast(Weights(np.array(shares), np.array(horizons_s, dtype=np.float64), EDGES, intercepts, weights))


@st.composite
def foresights(draw: st.DrawFn) -> Forecast:
    """Return foresights of three bid deltas and two horizons; in some every bid of a delta has the same chances."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.0, 0.5, 2.0]))
    shares = draw(st.sampled_from([(0.0, 0.1, 1.0), (0.0, 0.03, 0.3)]))
    intercepts = rng.normal(draw(st.sampled_from([-3.0, 0.0, 1.0])), scale, (3, 2))
    weights = rng.normal(0.0, scale, (3, 2, FEATURES, EDGES.shape[1] + 1))
    return Forecast(Weights(np.array(shares), np.array([900.0, HOUR_S]), EDGES, intercepts, weights))


def signals() -> st.SearchStrategy[MarketFeatures]:
    """Return signals, not all of which a market could give."""
    micros, means = st.integers(1, 3_000_000), st.floats(1, 3e6)
    return st.builds(
        MarketFeatures,
        price_micros=micros,
        before_micros=micros,
        age_s=st.integers(0, LOOKBACK_S),
        rises_6h=st.integers(0, 50),
        rises_24h=st.integers(0, 200),
        mean_1h_micros=means,
        mean_24h_micros=means,
        mean_7d_micros=means,
    )
