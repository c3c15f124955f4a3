"""The clairvoyant bound: the least cost of a job with knowledge of all prices, a lower bound for every scheme.

The clairvoyant has the same cap, reliable machines, billing and markets as a scheme, and the same moves: buy under any
bid, renew, let lapse. It bids so that the market takes a machine just when that is best, and refunds its hour. The
result is a bound and no schedule, since the clairvoyant may do what no scheme can:

- buy in any second of a bin of 120 s what is best in any other of its seconds; instances are divisible, purchases
  unlimited in number and size;
- lose nothing by an eviction or a change: λ, σ, restarts and work lost since a checkpoint are left out (the share of
  time that checkpointing takes is not);
- count lapsing machines out of the cap for the longest time before their hour's end that any scheme can
  (`renewal_lead_s`);
- end in the last second of a bin, and pay the reliable machines to its first; save the rounding of the last charges.

Notes
-----
With divisible instances the cap is many slots of one vCPU, each with a path through time: idle, free until an eviction,
or in a paid hour. For an end at the boundary of bin B the job needs Σ w >= W of its slots' paths at the least Σ c. That
is a linear programme over the mixtures of paths, and equals its Lagrangian dual

    max over μ of  μ W + cap · min over paths (c - μ w) + reliable machines until B,

whose inner minimum is a shortest path over the bins, found for every B at once. The bound is the least over B. Each μ
gives a valid bound, so where the search for the best one stops early the bound is a little lower, never wrong.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor  # impure-ok: kernels on threads
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from proteus_spot.bidding.backtest.clairvoyant.hourly_offers import HourlyOffers, offers
from proteus_spot.bidding.backtest.clairvoyant.shortest_paths import (
    FREE,
    TAKEN,
    VALUE,
    WORK,
    Floats,
    PathBuffers,
    shortest,
)
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import PPM, JobParameters
from proteus_spot.bidding.backtest.price_arrays import Markets
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.runner import Outcomes
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES, Scheme
from proteus_spot.bidding.backtest.simulate import most_held
from proteus_spot.bidding.jit import entry, inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

#: Name of the bound in tables of schemes.
CLAIRVOYANT = "clairvoyant"

#: Length of a bin; a tick.
GRID_S = 120

#: Number of jobs that a thread takes at a time.
_CHUNK = 25

#: Maximum number of values of μ, and the relative tolerance of the bound.
_TRIES, _TOLERANCE = 48, 1e-6

#: Value of work at the first μ, as a multiple of its highest price: so high that hardly anything but work counts.
_DEAR = 1e5

_COST, _RUNTIME, _ON_DEMAND = int(Outcome.COST_MICROS), int(Outcome.RUNTIME_S), int(Outcome.ON_DEMAND_VCPU_S)
_PAID, _FREE_VCPU_S, _FINISHED = int(Outcome.PAID_VCPU_S), int(Outcome.FREE_VCPU_S), int(Outcome.FINISHED)
_EVICTIONS = int(Outcome.EVICTIONS)


class _Terms(NamedTuple):
    """Needs and resources of a job; see `JobParameters`.

    Attributes
    ----------
    window_s : maximum run time.
    work_vcpu_s : work, at the efficiency that the elasticity leaves.
    cap : maximum number of spot vCPUs.
    reliable_vcpus, reliable_rate, reliable_micros : vCPUs of all reliable machines; those that compute; price a second.
    rounded_micros : maximum rounding of all last charges together: half a micro-dollar each.
    """

    window_s: int
    work_vcpu_s: float
    cap: float
    reliable_vcpus: int
    reliable_rate: int
    reliable_micros: float
    rounded_micros: int


def run(
    markets: Markets,
    starts_s: Int64s,
    hours: int,
    reference: Reference,
    *,
    scheme: Scheme = SCHEMES["proteus"],
    threads: int = 1,
    grid_s: int = GRID_S,
    **changes: int,
) -> Outcomes:
    """Return the bound of a job of `hours` at each start, in the form of a scheme's outcomes.

    Run time, machine time and evictions are those of the mixture of paths at this cost; an eviction of the whole cap
    counts as one. A job that cannot be done within the window is not finished; its cost is that of the reliable
    machines.

    Parameters
    ----------
    scheme : gives the reliable machines, the cap and the share of time for checkpoints; `proteus` and its cluster by
        default.
    grid_s : length of a bin; shorter bins tighten the bound, and the run time grows with their squared number.
    **changes : fields of `JobParameters` that differ from the scheme's.

    Raises
    ------
    ValueError
        As `bidding.backtest.clairvoyant.hourly_offers.offers`.
    """
    setting = scheme.setting(reference, hours, **changes)
    cap = setting.max_spot_vcpus
    if scheme.rule is SchemeId.STANDARD:  # buys its own number at once
        cap = max(cap, reference.vcpus if scheme.parameters is None else int(scheme.parameters[0]))
    rows = bounds(markets, starts_s, replace(setting, max_spot_vcpus=cap), threads=threads, grid_s=grid_s)
    return Outcomes(rows, hours, reference)


def bounds(
    markets: Markets, starts_s: Int64s, setting: JobParameters, *, threads: int = 1, grid_s: int = GRID_S
) -> Int64s:
    """Return the rows, shape (jobs, len(Outcome)), of the bounds of a job under `setting` at each start; see `run`."""
    starts_s = np.ascontiguousarray(starts_s, dtype=np.int64)
    rows = np.zeros((len(starts_s), len(Outcome)), dtype=np.int64)
    if not len(starts_s):
        return rows
    seen = offers(markets, setting, int(starts_s.min()), int(starts_s.max()) + setting.window_s, grid_s)
    reliable_vcpus = setting.reliable_count * setting.reliable_vcpus
    terms = _Terms(
        setting.window_s,
        setting.work_vcpu_s * PPM / setting.efficiency_ppm,
        float(setting.max_spot_vcpus),
        reliable_vcpus,
        reliable_vcpus * setting.reliable_works,
        setting.reliable_count * setting.reliable_micros / HOUR_S,
        (most_held(markets, setting) + 2) // 2,
    )

    def some(first: int) -> None:
        chunk = slice(first, first + _CHUNK)
        _bounds(seen, terms, starts_s[chunk], rows[chunk])

    with ThreadPoolExecutor(max_workers=threads) as pool:
        for _ in pool.map(some, range(0, len(starts_s), _CHUNK)):
            pass  # the first error of a thread is raised here
    return rows


@inline_jit
def _bound(seen: HourlyOffers, terms: _Terms, start_s: int, room: PathBuffers, tried: Floats, out: Int64s) -> None:
    """Write the row of the job that starts at `start_s`.

    Parameters
    ----------
    tried : shape (_TRIES, boundaries, 4), buffer for the path of each μ to each end.
    """
    first = (start_s - seen.first_s) // seen.grid_s
    late_s = start_s - seen.first_s - first * seen.grid_s
    ends = -(-(late_s + terms.window_s) // seen.grid_s)  # the last boundary
    mus = np.empty(_TRIES)
    best = np.empty(ends + 1)
    for end in range(ends + 1):
        best[end] = _reliable(seen, terms, end, late_s)  # under μ = 0
    ahead = seen.free_s.shape[1] - 1
    dearest = 0.0
    for k in range(first, first + ends):
        if seen.renewed_micros[k] < np.inf:
            dearest = max(dearest, seen.renewed_micros[k])
    tries = 0
    mu = _DEAR * max(dearest, 1.0) / HOUR_S
    horizon = ends
    low_slope, high_slope = 0.0, 0.0
    while True:
        mus[tries] = mu
        shortest(seen, first, late_s, horizon, mu, room, tried[tries])
        for end in range(1, horizon + 1):
            value = mu * _needed(seen, terms, end, late_s) + terms.cap * tried[tries, end, VALUE]
            best[end] = max(best[end], value + _reliable(seen, terms, end, late_s))
            # at the first μ a path that does more would cost more than all hours that fit: so there is none by this end
            spared_s = (end / ahead + 2) * HOUR_S / _DEAR
            if tries == 0 and _needed(seen, terms, end, late_s) > terms.cap * (tried[0, end, WORK] + spared_s):
                best[end] = np.inf
        tries += 1
        # the end that costs least so far, and the μ on both sides of its best one
        end = 1 + int(np.argmin(best[1 : horizon + 1]))
        needed, reliable = _needed(seen, terms, end, late_s), _reliable(seen, terms, end, late_s)
        low, high = -1, -1
        for one in range(tries):
            if needed > terms.cap * tried[one, end, WORK]:
                if low < 0 or mus[one] > mus[low]:
                    low = one
            elif high < 0 or mus[one] < mus[high]:
                high = one
        if high < 0:
            break  # no end is late enough; or this one is to the last second, and costs what it does at the first μ
        low_mu, low_slope, low_value = 0.0, needed, reliable
        if low >= 0:
            low_mu, low_slope = mus[low], needed - terms.cap * tried[low, end, WORK]
            low_value = low_mu * needed + terms.cap * tried[low, end, VALUE] + reliable
        high_slope = needed - terms.cap * tried[high, end, WORK]
        high_value = mus[high] * needed + terms.cap * tried[high, end, VALUE] + reliable
        if low_slope > high_slope:
            mu = (high_value - low_value + low_slope * low_mu - high_slope * mus[high]) / (low_slope - high_slope)
        else:
            mu = low_mu
        at_most = low_value + low_slope * (mu - low_mu)
        if at_most - best[end] <= _TOLERANCE * at_most or tries == len(mus) or not low_mu < mu < mus[high]:
            break
        while horizon > end and _reliable(seen, terms, horizon, late_s) >= at_most:
            horizon -= 1  # its reliable machines alone cost more
    out[:] = 0
    if best[end] == np.inf:
        out[_RUNTIME] = terms.window_s
        out[_COST] = int(terms.reliable_micros * terms.window_s) - 1
    else:
        out[_FINISHED] = 1
        out[_RUNTIME] = min(end * seen.grid_s - late_s, terms.window_s)
        out[_COST] = int(best[end]) - terms.rounded_micros
        share = 0.0 if high < 0 else 1.0
        if high >= 0 and low_slope > high_slope:
            share = low_slope / (low_slope - high_slope)
        free_s, taken = share * tried[high, end, FREE], share * tried[high, end, TAKEN]
        if low >= 0:
            free_s += (1.0 - share) * tried[low, end, FREE]
            taken += (1.0 - share) * tried[low, end, TAKEN]
        out[_FREE_VCPU_S] = int(min(max(terms.cap * free_s, 0.0), max(needed, 0.0)))
        out[_PAID] = int(max(needed, 0.0)) - out[_FREE_VCPU_S]
        out[_EVICTIONS] = int(np.rint(taken))
    out[_COST] = max(out[_COST], 0)
    out[_ON_DEMAND] = terms.reliable_vcpus * out[_RUNTIME]


@inline_jit
def _reliable(seen: HourlyOffers, terms: _Terms, end: int, late_s: int) -> float:
    """Return the cost of the reliable machines until the bin before the boundary `end` begins."""
    return terms.reliable_micros * max((end - 1) * seen.grid_s - late_s, 0)


@inline_jit
def _needed(seen: HourlyOffers, terms: _Terms, end: int, late_s: int) -> float:
    """Return the vCPU-seconds that the reliable machines leave to do until the boundary `end`."""
    return terms.work_vcpu_s - terms.reliable_rate * (end * seen.grid_s - late_s)


def _jobs(version: int) -> Callable[..., int]:
    def loop(seen: HourlyOffers, terms: _Terms, starts_s: Int64s, rows: Int64s) -> int:
        most = (terms.window_s + 2 * seen.grid_s) // seen.grid_s + 2  # boundaries 0, 1, ... of one job
        bins = most + HOUR_S // seen.grid_s
        room = PathBuffers(np.empty((bins, 4)), np.empty((bins, 4)), np.empty((bins, 4)))
        tried = np.empty((_TRIES, most, 4))
        for job in range(len(starts_s)):
            _bound(seen, terms, starts_s[job], room, tried, rows[job])
        return version

    return loop


_bounds = entry(_jobs)
