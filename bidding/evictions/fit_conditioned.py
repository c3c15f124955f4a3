"""Fit of the model `conditioned`: survival given the market's present state, shrunk where a state was rare."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import BID_DELTAS_MICROS, HORIZONS_S, Float64s, falling
from proteus_spot.bidding.evictions.fit_survival import Report, fit_survival, quiet
from proteus_spot.bidding.evictions.lifetimes import grants_s, lifetimes_s, shares, survivors
from proteus_spot.bidding.evictions.states import LATELY_S, Bins, changes, states_at
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet


@dataclass(frozen=True)
class Conditions:
    """Conditions of a state, and the strength of the shrinkage.

    Attributes
    ----------
    levels : tuple of float
        Quantiles of the market's price over the window, by time; a further edge is its on-demand price, where known.
    ages_s : tuple of int
        Edges of the time since the price last changed.
    aboves_s : tuple of int
        Edges of the time of the last day that the price spent above the bid.
    pool_grants, own_grants : float
        Number of grants at which the observations of a state, in all markets or in the market itself, weigh as much as
        the estimate without them. Neighbouring minutes are dependent, so the numbers are those of days.
    """

    levels: tuple[float, ...] = (1 / 3, 2 / 3)
    ages_s: tuple[int, ...] = (300, 1200, 3600)
    aboves_s: tuple[int, ...] = (1, 7200)
    pool_grants: float = 4320.0
    own_grants: float = 1440.0

    def __post_init__(self) -> None:
        for name in ("levels", "ages_s", "aboves_s"):
            edges = getattr(self, name)
            if any(low >= high for low, high in pairwise(edges)) or (edges and edges[0] <= 0):
                raise ValueError(f"{name}: must be above 0 and rise, not {edges}")
        if any(level >= 1 for level in self.levels):
            raise ValueError(f"levels: are quantiles below 1, not {self.levels}")
        if not (self.pool_grants >= 0 and self.own_grants >= 0):
            raise ValueError("pool_grants and own_grants must not be negative")


def fit_conditioned(
    traces: TraceSet,
    window: TimeWindow,
    on_demand_micros: Mapping[Market, Micros] | None = None,
    *,
    conditions: Conditions = Conditions(),
    deltas_micros: Sequence[Micros] = BID_DELTAS_MICROS,
    report: Report = quiet,
) -> CurveModel:
    """Return the model of survival by market, state and delta.

    Parameters
    ----------
    traces : prices; those of the day before the window are used, those after it are not.
    on_demand_micros : on-demand prices by market; a price above it is a separate level.

    Notes
    -----
    For each horizon, three steps, each weighted by its number of observations:

    1. `fit_survival`, the market's own curve S;
    2. the effect of a state in all markets together: with the share o that was taken in it, and the share e that S
       predicts for it, θ = ln(1 - o') / ln(1 - e), where o' is o shrunk towards e by `pool_grants`. S^θ is the prior;
    3. the market's own observations in the state, shrunk towards the prior by `own_grants`.

    Last, a curve is made to fall with the time, and to rise neither with a lower delta nor with a longer time above the
    bid (the mean of the lowest and the highest such surface), so that of two bids the higher never lives shorter. With
    a single state this is `fit_survival`.
    """
    plain = fit_survival(traces, window, deltas_micros=deltas_micros)
    horizons = plain.curves.horizons_s
    bins = _bins(traces, plain.markets, window, on_demand_micros or {}, conditions)
    cells = []
    for row, market in enumerate(plain.markets):
        report(row, len(plain.markets), str(market))
        trace = changes(traces[market]).between(window.from_s - LATELY_S, window.until_s)
        at_s = grants_s(trace, window.from_s, window.until_s)
        lives = lifetimes_s(trace, plain.curves.deltas_micros, at_s, window.until_s, HORIZONS_S[-1])
        states = states_at(trace, bins, row, plain.curves.deltas_micros, at_s)
        cells.append(survivors(lives, states, window.until_s - at_s, horizons, bins.n_states))
    theta = _pooled(plain, cells, bins.n_states, conditions.pool_grants)
    lived = np.empty((len(cells), *theta.shape))
    grants = np.empty(lived.shape[:3], dtype=np.int64)
    for row, (seen, taken) in enumerate(cells):
        guess = np.power(plain.curves.survival[row], theta)
        own = np.where(seen > 0, shares(seen, taken, horizons), guess)
        weight = seen / np.maximum(seen + conditions.own_grants, 1e-9)
        lived[row] = _ordered(falling(np.clip(guess + weight * (own - guess), 0, 1)), bins)
        grants[row] = seen[..., 0]
    curves = plain.curves._replace(survival=lived)
    notes = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(conditions).items()}
    return CurveModel("conditioned", plain.markets, window, curves, bins, grants, notes)


#: Maximum share in a logarithm; a share nearer to 1 cannot be distinguished from it.
_NEARLY = 1 - 1e-9
#: Above every price.
_NO_PRICE = int(np.iinfo(np.int64).max) - 1


def _pooled(plain: CurveModel, cells: Sequence[tuple[Int64s, Int64s]], n_states: int, pool_grants: float) -> Float64s:
    """Return θ of each state, delta and horizon, over all markets."""
    shape = (n_states, *plain.curves.survival.shape[2:])
    n, observed, expected = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for row, (seen, taken) in enumerate(cells):
        n += seen
        observed += seen * (1 - shares(seen, taken, plain.curves.horizons_s))
        expected += seen * (1 - plain.curves.survival[row])
    foretold = np.minimum(expected / np.maximum(n, 1), _NEARLY)
    drawn = np.minimum((observed + pool_grants * foretold) / np.maximum(n + pool_grants, 1e-9), _NEARLY)
    observed_cells = (foretold > 0) & (n > 0)
    theta = np.ones(shape)
    theta[observed_cells] = np.log1p(-drawn[observed_cells]) / np.log1p(-foretold[observed_cells])
    return theta


def _ordered(lived: Float64s, bins: Bins) -> Float64s:
    """Return curves (states, deltas, horizons) that rise neither with a lower delta nor with a longer time above it."""
    levels, ages, aboves = bins.shape
    cube = lived.reshape(levels * ages, aboves, *lived.shape[1:])
    high = np.maximum.accumulate(np.maximum.accumulate(cube, axis=2)[:, ::-1], axis=1)[:, ::-1]
    low = np.minimum.accumulate(np.minimum.accumulate(cube[:, :, ::-1], axis=2)[:, :, ::-1], axis=1)
    return ((low + high) / 2).reshape(lived.shape)


def _bins(
    traces: TraceSet,
    markets: Sequence[Market],
    window: TimeWindow,
    on_demand_micros: Mapping[Market, Micros],
    conditions: Conditions,
) -> Bins:
    rows = [_levels(traces[market], window, on_demand_micros, market, conditions.levels) for market in markets]
    width = len(conditions.levels) + bool(on_demand_micros)
    return Bins(
        np.array(rows, dtype=np.int64).reshape(len(rows), width),
        np.array(conditions.ages_s, dtype=np.int64),
        np.array(conditions.aboves_s, dtype=np.int64),
    )


def _levels(
    trace: Trace,
    window: TimeWindow,
    on_demand_micros: Mapping[Market, Micros],
    market: Market,
    quantiles: Sequence[float],
) -> list[int]:
    """Return the lower edges of the price levels: just above each quantile, and just above on-demand."""
    at_s = grants_s(trace, window.from_s, window.until_s)
    prices = trace.prices_micros[np.searchsorted(trace.times_s, at_s, side="right") - 1]
    edges = [int(np.quantile(prices, quantile, method="inverted_cdf")) + 1 for quantile in quantiles]
    if on_demand_micros:
        edges.append(on_demand_micros.get(market, _NO_PRICE) + 1)
    return sorted(edges)
