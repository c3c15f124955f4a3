"""Fits of the models `table` and `survival` to a price history: survival given the bid delta alone."""

from collections.abc import Callable, Sequence

import numpy as np

from proteus_spot.bidding.evictions import table as eviction
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import (
    BID_DELTAS_MICROS,
    HORIZONS_S,
    Curves,
    Float64s,
    falling,
    never_falling_with_delta,
)
from proteus_spot.bidding.evictions.lifetimes import grants_s, lifetimes_s, shares, survivors
from proteus_spot.bidding.evictions.states import one_state
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, TraceSet

#: Reports the progress of a fit: markets done, their total number, and the next market.
Report = Callable[[int, int, str], None]


def quiet(done: int, of: int, what: str) -> None:
    """Report no progress."""


def fit_table(traces: TraceSet, window: TimeWindow, *, report: Report = quiet) -> CurveModel:
    """Return the model of the paper's table, fitted on `window`."""
    report(0, 1, f"{len(traces)} markets")
    grants = {market: len(grants_s(trace, window.from_s, window.until_s)) for market, trace in traces.items()}
    return of_table(eviction.fit(traces, window.from_s, window.until_s), window, grants)


def of_table(
    table: EvictionTable, window: TimeWindow | None = None, grants: dict[Market, int] | None = None
) -> CurveModel:
    """Return the table as survival curves: β within the hour, of which half before the median time.

    Notes
    -----
    Evictions are uniform up to the median, and from there to the hour; after the hour its mean hazard continues. Where
    a higher delta would live shorter for some minutes, because its median is less, it gets the lower one's survival: β
    is unchanged, its median may rise.

    Source: Proteus (EuroSys 2017), section 4.1. Differs: the paper uses β and the median alone.
    """
    horizons = np.array(HORIZONS_S, dtype=np.float64)
    lived = np.empty((len(table.markets), 1, len(table.deltas_micros), len(horizons)))
    for row, market in enumerate(table.markets):
        for column, (beta, median) in enumerate(table.rows[market]):
            lived[row, 0, column] = _two_lines(horizons, beta, median)
    curves = Curves(
        np.array(table.deltas_micros, dtype=np.int64),
        np.array(HORIZONS_S, dtype=np.int64),
        never_falling_with_delta(falling(lived)),
        np.ones(len(table.markets), dtype=np.int64),
    )
    counts = np.array([(grants or {}).get(market, 0) for market in table.markets], dtype=np.int64)
    counts_by_cell = np.broadcast_to(counts[:, None, None], lived.shape[:3]).copy()
    return CurveModel("table", table.markets, window, curves, one_state(len(table.markets)), counts_by_cell)


def _two_lines(horizons: Float64s, beta: float, median: float) -> Float64s:
    lived = (
        np.interp(horizons, [0, min(median, HOUR_S), HOUR_S], [1, 1 - beta / 2, 1 - beta]) if beta else 1 + 0 * horizons
    )
    lived[0] = 1
    beyond = horizons > HOUR_S
    lived[beyond] = (1 - beta) ** (horizons[beyond] / HOUR_S)
    return lived


def fit_survival(
    traces: TraceSet,
    window: TimeWindow,
    *,
    deltas_micros: Sequence[Micros] = BID_DELTAS_MICROS,
    highest_micros: Micros | None = None,
    report: Report = quiet,
) -> CurveModel:
    """Return the model of the share of bids that lived for each horizon, by market and delta.

    Parameters
    ----------
    window : every minute of it at which a price is known, and after which an hour is left, is a grant.
    deltas_micros : rising, not negative.
    highest_micros : minutes at which the price is above it are no grants.

    Notes
    -----
    Up to an hour all grants count, so that 1 - S(an hour) is the paper's β to the last grant. A longer horizon counts
    the grants that have as much left in the window. A market without any grant is not in the model.
    """
    deltas, horizons = np.array(deltas_micros, dtype=np.int64), np.array(HORIZONS_S, dtype=np.int64)
    known, rows, counts = [], [], []
    for done, (market, trace) in enumerate(traces.items()):
        report(done, len(traces), str(market))
        at_s = grants_s(trace, window.from_s, window.until_s, highest_micros)
        if not len(at_s):
            continue
        lives = lifetimes_s(trace, deltas, at_s, window.until_s, HORIZONS_S[-1])
        seen, taken = survivors(lives, np.zeros(lives.shape, np.int16), window.until_s - at_s, horizons, 1)
        known.append(market)
        rows.append(shares(seen, taken, horizons))
        counts.append(seen[..., 0])
    curves = Curves(deltas, horizons, _stacked(rows, (1, len(deltas), len(horizons))), np.ones(len(known), np.int64))
    grants = _stacked(counts, (1, len(deltas))).astype(np.int64)
    return CurveModel("survival", tuple(known), window, curves, one_state(len(known)), grants)


def _stacked(rows: Sequence[Float64s | Int64s], shape: tuple[int, ...]) -> Float64s:
    return np.stack(rows) if rows else np.empty((0, *shape))
