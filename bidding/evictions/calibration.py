"""Check of an eviction model on later prices: predicted against observed shares, and Brier scores.

A forecast is for one bid: will it be taken within the horizon? Outcomes of neighbouring forecasts are dependent, so the
standard error of a score is estimated from whole days.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.evictions.base import EvictionModel
from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.fit_survival import Report, quiet
from proteus_spot.bidding.evictions.lifetimes import Int32s, grants_s, lifetimes_s
from proteus_spot.bidding.evictions.table import DELTAS_MICROS
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, TraceSet

#: "Within the hour", and within a quarter of it.
CHECKED_S = (900, HOUR_S)
#: Number of bins of equal width of a reliability curve.
N_BINS = 20


@dataclass(frozen=True, eq=False)
class Calibration:
    """The forecasts of one model for one horizon, over all markets and deltas.

    Attributes
    ----------
    horizon_s : int
    deltas_micros : tuple of int
    markets : tuple of Market
        Markets of the model that had prices.
    counts, predicted, observed : ndarray of shape (deltas, N_BINS)
        Number of forecasts in each bin, the sum of their probabilities, and how many came true.
    errors : ndarray of shape (markets, days, deltas)
        Sum of the squared errors; `asked`, of the same shape, is their number.
    """

    horizon_s: int
    deltas_micros: tuple[Micros, ...]
    markets: tuple[Market, ...]
    counts: Int64s
    predicted: Float64s
    observed: Int64s
    errors: Float64s
    asked: Int64s

    @property
    def forecasts(self) -> int:
        """Number of forecasts."""
        return int(self.counts.sum())

    @property
    def brier(self) -> float:
        """The mean squared error of the forecasts; 0 is perfect, NaN if there are none."""
        return _ratio(self.errors.sum(), self.forecasts)

    @property
    def brier_se(self) -> float:
        """The standard error of `brier`, with days as the sampling unit."""
        return block_se(self.errors.sum(axis=(0, 2)), self.asked.sum(axis=(0, 2)))

    @property
    def brier_by_delta(self) -> Float64s:
        """`brier` of each delta."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.errors.sum(axis=(0, 1)) / self.asked.sum(axis=(0, 1)))

    @property
    def base_rate(self) -> float:
        """The share of the bids that was taken."""
        return _ratio(self.observed.sum(), self.forecasts)

    @property
    def bias(self) -> float:
        """The mean forecast less the share that was taken."""
        return _ratio(self.predicted.sum() - self.observed.sum(), self.forecasts)

    @property
    def calibration_error(self) -> float:
        """The mean distance of a bin's mean forecast from its observed share, weighted by forecasts."""
        return _ratio(np.abs(self.predicted.sum(axis=0) - self.observed.sum(axis=0)).sum(), self.forecasts)

    def curve(self) -> tuple[Float64s, Float64s, Int64s]:
        """Return (mean forecast, observed share, number of forecasts) of each non-empty bin, over all deltas."""
        counts = self.counts.sum(axis=0)
        filled = counts > 0
        predicted, observed = self.predicted.sum(axis=0)[filled], self.observed.sum(axis=0)[filled]
        return predicted / counts[filled], observed / counts[filled], counts[filled]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able values."""
        predicted, observed, counts = self.curve()
        by_delta = zip(self.deltas_micros, self.brier_by_delta.tolist(), strict=True)
        return {
            "horizon_s": self.horizon_s,
            "markets": len(self.markets),
            "forecasts": self.forecasts,
            "base_rate": self.base_rate,
            "brier": self.brier,
            "brier_se": self.brier_se,
            "bias": self.bias,
            "calibration_error": self.calibration_error,
            "reliability": [
                {"predicted": p, "observed": o, "forecasts": n}
                for p, o, n in zip(predicted.tolist(), observed.tolist(), counts.tolist(), strict=True)
            ],
            "brier_by_delta": [{"delta_micros": delta, "brier": score} for delta, score in by_delta],
        }


def calibrate(
    model: EvictionModel,
    traces: TraceSet,
    window: TimeWindow,
    *,
    horizons_s: Sequence[int] = CHECKED_S,
    deltas_micros: Sequence[Micros] = DELTAS_MICROS,
    highest_micros: Micros | None = None,
    every_s: int = MINUTE_S,
    report: Report = quiet,
) -> list[Calibration]:
    """Return the calibration of `model` on `window`, for each horizon.

    Parameters
    ----------
    traces : prices; those before the window are available to the model at its beginning.
    horizons_s : at most an hour each.
    highest_micros : no bids are placed while the price is above it.
    every_s : seconds between two moments, a multiple of a minute; more than one where a forecast costs time.

    Notes
    -----
    Every minute of the window (or moment, by `every_s`) after which an hour is left is a bid with each delta, in each
    market of the model. The caller must ensure that the window is later than that of the fit.

    Raises
    ------
    ValueError
        If a horizon is not in (0, an hour].
    """
    if not all(0 < horizon <= HOUR_S for horizon in horizons_s):
        raise ValueError(f"horizons must be above 0 and at most an hour, not {list(horizons_s)}")
    deltas = np.array(deltas_micros, dtype=np.int64)
    days = -(-(window.until_s - window.from_s) // DAY_S)
    parts: list[list[tuple[Any, ...]]] = [[] for _ in horizons_s]
    markets = []
    for done, (market, trace) in enumerate(traces.items()):
        report(done, len(traces), str(market))
        at_s = grants_s(trace, window.from_s, window.until_s, highest_micros) if market in model.markets else ()
        if not len(at_s):
            continue
        markets.append(market)
        at_s = np.asarray(at_s, dtype=np.int64)[:: max(every_s // MINUTE_S, 1)]
        states = model.states(market, trace, at_s, deltas)
        lives = lifetimes_s(trace, deltas, at_s, window.until_s, HOUR_S)
        day = (at_s - window.from_s) // DAY_S
        for found, horizon in zip(parts, horizons_s, strict=True):
            foretold = 1 - model.survival(market, deltas, horizon, np.arange(model.n_states)[:, None])
            found.append(_compare(foretold, states, lives, day, horizon, days))
    return [
        _calibration(horizon, tuple(deltas_micros), markets, found, days)
        for horizon, found in zip(horizons_s, parts, strict=True)
    ]


def gain(first: Calibration, second: Calibration) -> tuple[float, float]:
    """Return the Brier score of `first` less that of `second`, and the standard error (days as the sampling unit).

    Raises
    ------
    ValueError
        If the two do not cover the same bids.
    """
    if first.horizon_s != second.horizon_s or not np.array_equal(first.asked, second.asked):
        raise ValueError("the two are not about the same bids")
    differences, asked = (first.errors - second.errors).sum(axis=(0, 2)), first.asked.sum(axis=(0, 2))
    return _ratio(differences.sum(), asked.sum()), block_se(differences, asked)


def block_se(sums: Float64s, counts: Int64s) -> float:
    """Return the standard error of sum(sums) / sum(counts), a ratio estimated from independent blocks; NaN for one."""
    filled = counts > 0
    blocks = int(filled.sum())
    if blocks < 2:
        return float("nan")
    total = counts.sum()
    residues = sums[filled] - sums.sum() / total * counts[filled]
    return float(np.sqrt(blocks / (blocks - 1) * (residues**2).sum()) / total)


def _ratio(sums: Any, count: Any) -> float:
    return float(sums / count) if count else float("nan")


def _calibration(
    horizon_s: int, deltas: tuple[Micros, ...], markets: list[Market], found: list[tuple[Any, ...]], days: int
) -> Calibration:
    shape = (len(deltas), N_BINS)
    counts, predicted, observed = (
        sum((part[index] for part in found), start=np.zeros(shape, dtype=kind))
        for index, kind in enumerate((np.int64, np.float64, np.int64))
    )
    none = np.zeros((0, days, len(deltas)))
    errors = np.stack([part[3] for part in found]) if found else none
    asked = np.stack([part[4] for part in found]) if found else none.astype(np.int64)
    return Calibration(horizon_s, deltas, tuple(markets), counts, predicted, observed, errors, asked)


@compiled
def _compare(
    foretold: Float64s, states: NDArray[Any], lives: Int32s, day: Int64s, horizon_s: int, days: int
) -> tuple[Int64s, Float64s, Int64s, Float64s, Int64s]:
    """Return (counts, predicted, observed) by delta and bin, and (squared errors, forecasts) by day and delta.

    `foretold` has shape (states, deltas); `states` and `lives` (grants, deltas).
    """
    grants, deltas = lives.shape
    counts = np.zeros((deltas, N_BINS), dtype=np.int64)
    predicted = np.zeros((deltas, N_BINS))
    observed = np.zeros((deltas, N_BINS), dtype=np.int64)
    errors = np.zeros((days, deltas))
    asked = np.zeros((days, deltas), dtype=np.int64)
    for grant in range(grants):
        for delta in range(deltas):
            chance = foretold[states[grant, delta], delta]
            came = 1 if lives[grant, delta] < horizon_s else 0
            bin_ = min(int(chance * N_BINS), N_BINS - 1)
            counts[delta, bin_] += 1
            predicted[delta, bin_] += chance
            observed[delta, bin_] += came
            errors[day[grant], delta] += (chance - came) ** 2
            asked[day[grant], delta] += 1
    return counts, predicted, observed, errors, asked
