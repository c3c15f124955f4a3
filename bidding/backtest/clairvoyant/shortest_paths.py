"""Shortest paths of the clairvoyant: the best path of one vCPU of the cap to each bin, at a given value of work."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.clairvoyant.hourly_offers import HourlyOffers
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

Floats = NDArray[np.float64]

#: Columns of a path: c - μ w, with c in micro-dollars and w in seconds of one vCPU; w; the free part of w; evictions.
VALUE, WORK, FREE, TAKEN = range(4)


class PathBuffers(NamedTuple):
    """Buffers for the best paths to each bin, shape (bins, 4) each; see `shortest`.

    Attributes
    ----------
    bin : paths that reach the bin at any time in it and buy there.
    idle : paths that are idle before the bin begins.
    paid : paths whose paid hour has just ended in the bin.
    """

    bin: Floats
    idle: Floats
    paid: Floats


@inline_jit
def shortest(
    seen: HourlyOffers, first: int, late_s: int, ends: int, mu: float, room: PathBuffers, best: Floats
) -> None:
    """Write the path of the least c - μ w to each boundary: c in micro-dollars, w in seconds of one vCPU.

    Parameters
    ----------
    best : shape (ends + 1, 4) at least, the best path of a job that ends at the boundary.

    Notes
    -----
    A path that is evicted within bin l may buy again in it, or later. In the first case all later purchases are counted
    from the beginning of the bin, so work is counted up to the beginning, and the work since is owed (`room.bin`); in
    the second case it is counted to the eviction (`room.idle`). An hour has 3600 s wherever in the bin it begins, so
    what is owed before it is owed after it, and at most `seen.owed_s`.
    """
    grid_s, hour = seen.grid_s, HOUR_S // seen.grid_s
    ahead = seen.free_s.shape[1] - 1
    for k in range(ends + hour + 2):
        room.bin[k, VALUE], room.idle[k, VALUE], room.paid[k, VALUE] = np.inf, np.inf, np.inf
    for k in range(ends + 1):
        best[k, VALUE] = np.inf
    room.idle[0] = 0.0
    for k in range(ends + 1):
        here, paid = room.bin[k], room.paid[k]
        renews = paid[VALUE] < np.inf
        if renews:
            _go(room.bin, k, paid, 0.0, 0, 0, 0)
        _go(room.bin, k, room.idle[k], 0.0, 0, 0, 0)
        _go(best, k, here, 0.0, 0, 0, 0)
        if k == ends:
            break
        since_s = late_s if k == 0 else 0  # in the first bin there is nothing before the start
        owed_s = seen.owed_s[first + k]
        _go(room.idle, k + 1, room.idle[k], 0.0, 0, 0, 0)
        if renews:
            _go(room.idle, k + 1, paid, -mu * owed_s, owed_s, owed_s, 0)
        fresh, renewed = seen.fresh_micros[first + k], seen.renewed_micros[first + k]
        if fresh < mu * HOUR_S:
            _hours(here, k, since_s, owed_s, fresh, mu, ahead, ends, grid_s, room, best)
        if renews and renewed < min(fresh, mu * HOUR_S):
            _hours(paid, k, 0, owed_s, renewed, mu, ahead, ends, grid_s, room, best)
        last = min(ahead, ends - k)
        _taken(here, k, since_s, seen.free_s[first + k, : last + 1], mu, ahead, grid_s, room)
        if renews:
            _taken(paid, k, 0, seen.renewed_free_s[first + k, : last + 1], mu, ahead, grid_s, room)


@inline_jit
def _taken(
    path: Floats, k: int, since_s: int, free_s: Int64s, mu: float, ahead: int, grid_s: int, room: PathBuffers
) -> None:
    """Extend `path` by a purchase in bin k, `since_s` after its beginning, that is taken within the hour."""
    for j in range(len(free_s)):
        work_s = free_s[j] - since_s
        if work_s <= 0:
            continue
        if j == ahead:  # it lapsed before, and works on outside the cap
            _go(room.idle, k + j, path, -mu * work_s, work_s, work_s, 1)
            continue
        _go(room.idle, k + j + 1, path, -mu * work_s, work_s, work_s, 1)
        if j > 0:
            work_s = j * grid_s - since_s
            _go(room.bin, k + j, path, -mu * work_s, work_s, work_s, 1)


@inline_jit
def _hours(
    path: Floats,
    k: int,
    since_s: int,
    owed_s: int,
    micros: float,
    mu: float,
    ahead: int,
    ends: int,
    grid_s: int,
    room: PathBuffers,
    best: Floats,
) -> None:
    """Extend `path` by an hour that begins in bin k: it is renewed, it lapses, or the job ends in it.

    In the last case what is owed is time that is counted in the hour but was worked, for free, before it.
    """
    hour, each = HOUR_S // grid_s, micros / HOUR_S
    value = micros - mu * HOUR_S
    _go(room.paid, k + hour, path, value, HOUR_S, 0, 0)
    _go(room.bin, k + ahead, path, value, HOUR_S, 0, 0)
    _go(room.idle, k + ahead + 1, path, value - mu * owed_s, HOUR_S + owed_s, owed_s, 0)
    for j in range(1, min(hour, ends - k) + 1):
        work_s = j * grid_s - since_s
        paid_s = max(work_s - owed_s, 0)
        _go(best, k + j, path, each * paid_s - mu * work_s, work_s, work_s - paid_s, 0)


@inline_jit
def _go(to: Floats, k: int, path: Floats, value: float, work_s: int, free_s: int, taken: int) -> None:
    """Store `path` and its extension as the path to boundary k if it is better."""
    if path[VALUE] + value < to[k, VALUE]:
        to[k, VALUE] = path[VALUE] + value
        to[k, WORK] = path[WORK] + work_s
        to[k, FREE] = path[FREE] + free_s
        to[k, TAKEN] = path[TAKEN] + taken
