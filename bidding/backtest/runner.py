"""Runs of many jobs of one scheme, on several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor  # impure-ok: kernels on threads
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.eviction_arrays import EvictionArrays
from proteus_spot.bidding.backtest.outcomes import LOG_COLUMNS, Outcome
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.price_arrays import Markets
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import Scheme
from proteus_spot.bidding.backtest.simulate import room, simulate
from proteus_spot.bidding.jit import entry
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

Floats = NDArray[np.float64]

#: Number of jobs that a thread takes at a time.
_CHUNK = 50


@dataclass(frozen=True)
class Outcomes:
    """Results of the jobs; shape (jobs,) each.

    Attributes
    ----------
    rows : shape (jobs, len(Outcome)), whole numbers; see `Outcome`.
    hours, reference : length of a job and the cluster, to which costs and run times are relative.
    """

    rows: Int64s
    hours: int
    reference: Reference

    @property
    def relative_cost(self) -> Floats:
        """Cost as a share of the job's cost on demand."""
        return self.rows[:, Outcome.COST_MICROS] / self.reference.job_micros(self.hours)

    @property
    def relative_runtime(self) -> Floats:
        """Run time as a share of the reference cluster's."""
        return self.rows[:, Outcome.RUNTIME_S] / (self.hours * HOUR_S)

    def machine_hours(self, paid_by: Outcome, vcpus: int = 8) -> Floats:
        """Return the hours of machines of `vcpus` that `paid_by` counts: ON_DEMAND_, PAID_ or FREE_VCPU_S."""
        return self.rows[:, paid_by] / (HOUR_S * vcpus)

    @property
    def evictions(self) -> Int64s:
        """Number of allocations that the market took."""
        return self.rows[:, Outcome.EVICTIONS]

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Whether the job was done before it was given up."""
        done: NDArray[np.bool_] = self.rows[:, Outcome.FINISHED] == 1
        return done


def run(
    markets: Markets,
    table: EvictionArrays,
    scheme: Scheme,
    starts_s: Int64s,
    hours: int,
    reference: Reference,
    *,
    threads: int = 1,
    **changes: int,
) -> Outcomes:
    """Return the results of a job of `hours` at each start.

    Parameters
    ----------
    starts_s : seconds since the epoch, shape (jobs,).
    hours : run time of the job on the reference cluster.
    threads : number of jobs that run at the same time; the results do not depend on it.
    **changes : fields of `JobParameters` that differ from the scheme's.

    Raises
    ------
    ValueError
        If the scheme weighs signals, and `table` has no foresight though bids decide.
    """
    starts_s = np.ascontiguousarray(starts_s, dtype=np.int64)
    setting = scheme.setting(reference, hours, **changes)
    rows = np.empty((len(starts_s), len(Outcome)), dtype=np.int64)
    log = np.empty((0, len(LOG_COLUMNS)), dtype=np.int64)

    def some(first: int) -> None:
        chunk = slice(first, first + _CHUNK)
        _run(markets, table, scheme, reference, setting, starts_s[chunk], rows[chunk], log)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        for _ in pool.map(some, range(0, len(starts_s), _CHUNK)):
            pass  # the first error of a thread is raised here
    return Outcomes(rows, hours, reference)


def run_one(
    markets: Markets, table: EvictionArrays, scheme: Scheme, start_s: int, reference: Reference, setting: JobParameters
) -> tuple[Int64s, Int64s]:
    """Return (the row of the job, its purchases with the columns LOG_COLUMNS) of one job."""
    rows = np.empty((1, len(Outcome)), dtype=np.int64)
    at_most = 64
    while True:
        log = np.empty((at_most, len(LOG_COLUMNS)), dtype=np.int64)
        _run(markets, table, scheme, reference, setting, np.array([start_s], dtype=np.int64), rows, log)
        purchases = int(rows[0, Outcome.PURCHASES])
        if purchases <= at_most:
            return rows[0], log[:purchases]
        at_most = purchases


def _run(
    markets: Markets,
    table: EvictionArrays,
    scheme: Scheme,
    reference: Reference,
    setting: JobParameters,
    starts_s: Int64s,
    rows: Int64s,
    log: Int64s,
) -> None:
    if scheme.rule is SchemeId.BEST and table.bids_decide and not len(table.foresight.shares):
        raise ValueError("a scheme that weighs signals needs a foresight: see pack_table")
    space = room(markets, max(len(table.deltas_micros), len(table.foresight.shares)), setting)
    settings = setting.record()
    values = np.array(scheme.values(reference), dtype=np.float64)
    _loop(int(scheme.rule), values, settings, markets, table, starts_s, space, rows, log)


def _jobs(version: int) -> Callable[..., int]:
    def loop(
        rule: int,
        parameters: Floats,
        settings: Any,
        markets: Markets,
        table: EvictionArrays,
        starts_s: Int64s,
        space: Any,
        rows: Int64s,
        log: Int64s,
    ) -> int:
        for job in range(len(starts_s)):
            simulate(rule, parameters, settings, markets, table, starts_s[job], space, rows[job], log)
        return version

    return loop


_loop = entry(_jobs)
