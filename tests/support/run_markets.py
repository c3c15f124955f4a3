"""The small market that `proteus run` and `proteus sweep run` trade on."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from proteus_spot.bidding.market.model import DAY_S, MINUTE_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.market_data.price_files import write_prices

#: When the run begins: half of the file's four days have passed (2016-03-03T00:00:00Z).
BEGIN_S = 1456963200
CHEAP, SECOND, THIRD = (Market(*pair.split("/")) for pair in ("c4.large/a", "c4.large/b", "m4.large/a"))
ON_DEMAND = {"c4.large": "0.105", "m4.large": "0.12"}


def write_changes(path: Path, changes: Mapping[Market, Sequence[tuple[int, int]]]) -> Path:
    """Write a price file of four days; changes are (minutes after the run's begin, micro-dollars)."""
    traces = {}
    for market, rows in changes.items():
        times = [BEGIN_S - 2 * DAY_S, *(BEGIN_S + minutes * MINUTE_S for minutes, _ in rows[1:]), BEGIN_S + 2 * DAY_S]
        prices = [price for _, price in rows]
        traces[market] = Trace(np.array(times), np.array([*prices, prices[-1]]))
    write_prices(path, TraceSet(traces))
    return path
