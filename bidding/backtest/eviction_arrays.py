"""The eviction table and the forecast as arrays, for the compiled loop."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.economics.equations import useful_time_s
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.forecast.forecast_model import BLIND, Forecast, Weights
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import Int64s

#: First index of `EvictionArrays.cells`: β, the median time to an eviction, and ω of a whole hour.
BETA, MEDIAN_S, USEFUL_S = range(3)


class EvictionArrays(NamedTuple):
    """Eviction table and forecast of the bids.

    Attributes
    ----------
    deltas_micros : shape (deltas,), rising.
    cells : shape (3, markets, deltas); see BETA, MEDIAN_S, USEFUL_S and `EvictionTable`.
    known : shape (markets,); 0 where the market has no history, and nothing is bought.
    foresight : forecast of a bid from signals; without weights if none was fitted.
    bids_decide : 0 where machines are taken whatever was bid, and a rule that weighs signals uses the cells instead.
    """

    deltas_micros: Int64s
    cells: NDArray[np.float64]
    known: Int64s
    foresight: Weights
    bids_decide: int


def pack_table(table: EvictionTable, markets: Sequence[Market], foresight: Forecast | None = None) -> EvictionArrays:
    """Return the rows of `markets` as arrays, in their order."""
    cells = np.zeros((3, len(markets), len(table.deltas_micros)))
    cells[MEDIAN_S] = HOUR_S
    known = np.array([market in table.rows for market in markets], dtype=np.int64)
    rows = np.flatnonzero(known)
    if rows.size:
        cells[BETA, rows], cells[MEDIAN_S, rows] = table.grid([markets[int(row)] for row in rows])
    cells[USEFUL_S] = useful_time_s(cells[BETA], cells[MEDIAN_S], HOUR_S)
    weights = BLIND if foresight is None else foresight.arrays
    return EvictionArrays(np.array(table.deltas_micros, dtype=np.int64), cells, known, weights, int(table.bids_decide))


@inline_jit
def of_bid(table: EvictionArrays, market: int, delta_micros: int) -> tuple[float, float]:
    """Return (β, median seconds) of a bid that stands `delta_micros` above the price; as `EvictionTable.of_bid`."""
    if table.known[market] == 0:
        return 0.0, float(HOUR_S)
    if delta_micros < 0:
        return 1.0, 0.0
    low = 0
    high = len(table.deltas_micros)
    while low < high:
        middle = (low + high) // 2
        if table.deltas_micros[middle] <= delta_micros:
            low = middle + 1
        else:
            high = middle
    column = max(low - 1, 0)
    return table.cells[BETA, market, column], table.cells[MEDIAN_S, market, column]
