"""The six features of a market at each moment, from its price steps.

Source: SpotTune (2020), section III-B. Differs: the paper interpolates between two prices; here a price holds until the
next one, as on the market, so that no feature contains a later price.
"""

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.states import changes
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S
from proteus_spot.bidding.market.traces import Int64s, Trace

Float32s = NDArray[np.float32]

#: The features, in their order.
FEATURES = ("price_usd", "average_usd", "changes", "age_s", "workday", "hour")
#: One-minute records that a predictor sees: those of the past, and the present one.
RECORDS = 60
#: The first of January 1970 was a Thursday; days of a week count from Monday.
_EPOCH_WEEKDAY, _WORKDAYS, _WEEK = 3, 5, 7


def price_records(trace: Trace, at_s: Int64s) -> Float64s:
    """Return the features of each moment, shape (*moments, 6).

    Parameters
    ----------
    trace : the market's prices, at least one; events after a moment are ignored for it.
    at_s : of any shape. Before the first event its price counts as having held, for an age of 0.

    Notes
    -----
    The price and its average over the past hour, weighted by time, in dollars; the number of price changes in the past
    hour; the seconds since the last change; 1 on Monday to Friday; the hour of the day (UTC).
    """
    own = changes(trace)
    first_s = own.times_s[0]
    moments = np.maximum(at_s, first_s)
    now = _event_at(own, moments)
    begin_s = np.maximum(moments - HOUR_S, first_s)
    begin = _event_at(own, begin_s)
    price = own.prices_micros[now]
    spent = np.append(0, np.cumsum(np.diff(own.times_s) * own.prices_micros[:-1]))
    integral = (spent[now] + (moments - own.times_s[now]) * price) - (
        spent[begin] + (begin_s - own.times_s[begin]) * own.prices_micros[begin]
    )
    span_s = moments - begin_s
    average = np.where(span_s > 0, integral / np.maximum(span_s, 1), price)
    day = at_s // DAY_S
    return np.stack(
        [
            price / 1e6,
            average / 1e6,
            (now - begin).astype(np.float64),
            (moments - own.times_s[now]).astype(np.float64),
            ((day + _EPOCH_WEEKDAY) % _WEEK < _WORKDAYS).astype(np.float64),
            (at_s % DAY_S // HOUR_S).astype(np.float64),
        ],
        axis=-1,
    )


def past_minutes(at_s: Int64s) -> Int64s:
    """Return the moments of the records up to each moment, the oldest first, shape (moments, RECORDS)."""
    return at_s[:, None] - MINUTE_S * np.arange(RECORDS - 1, -1, -1, dtype=np.int64)


def prices_at(trace: Trace, at_s: Int64s) -> Int64s:
    """Return the price of each moment in micro-dollars; the first one before the first event."""
    return trace.prices_micros[_event_at(trace, at_s)]


def _event_at(trace: Trace, at_s: Int64s) -> Int64s:
    return np.maximum(np.searchsorted(trace.times_s, at_s, side="right") - 1, 0)
