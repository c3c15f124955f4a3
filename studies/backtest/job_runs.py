"""Simulation of many jobs for each scheme, zone and length on one field."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.bidding.backtest.billing_codes import billing_settings
from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
from proteus_spot.bidding.backtest.clairvoyant.bound import run as run_bound
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.reference_cluster import Reference, draw_starts
from proteus_spot.bidding.backtest.runner import Outcomes
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import Scheme
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.market_data.trace_files import Report

#: Number of jobs simulated between two progress reports.
_BATCH = 2000


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    scheme: str
    zone: str
    hours: int

    def __str__(self) -> str:
        return f"{self.scheme}, zone {self.zone}, {self.hours} h"


@dataclass(frozen=True)
class CellResult:
    """A cell and the outcomes of its jobs."""

    cell: Cell
    starts_s: Int64s
    outcomes: Outcomes


@dataclass(frozen=True)
class BacktestPlan:
    """The cells to be run, in the order of the table, and their inputs.

    Attributes
    ----------
    zones : the markets of each zone.
    starts_s : the starts by the job's hours, the same for every scheme and zone.
    """

    field: BacktestInputs
    spec: BacktestSpec
    zones: dict[str, tuple[Market, ...]]
    starts_s: dict[int, Int64s]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell."""
        return tuple(
            Cell(scheme, zone, hours) for hours in self.starts_s for zone in self.zones for scheme in self.spec.compared
        )


def all_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def plan(field: BacktestInputs, spec: BacktestSpec) -> BacktestPlan:
    """Return the plan of a backtest.

    Raises
    ------
    InputError
        If there is no such zone, or a job does not fit into the evaluation.
    """
    zones = field.zones(spec.zones)
    starts_s = {}
    window = field.windows.evaluation
    for hours in spec.hours:
        try:
            starts_s[hours] = draw_starts(
                np.random.default_rng(spec.seed), window.from_s, window.until_s, hours, spec.starts
            )
        except ValueError as error:
            raise InputError(
                f"--hours {hours}: {error} in the evaluation ({window}); give less, or a longer one by --from and --to"
            ) from None
    return BacktestPlan(field, spec, zones, starts_s)


def setting_of(scheme: Scheme, spec: BacktestSpec, reference: Reference, hours: int) -> JobParameters:
    """Return the setting of a scheme's jobs: that of `spec`, except for what the scheme's elasticity fixes.

    Checkpointing has no reliable machines and its own overheads; the scheme that buys nothing is the reference cluster.
    """
    return scheme.setting(reference, hours, **_changes(scheme, spec))


def _changes(scheme: Scheme, spec: BacktestSpec) -> dict[str, int]:
    asked = {
        "eviction_overhead_s": spec.eviction_overhead_s,
        "resize_overhead_s": spec.resize_overhead_s,
        "max_spot_vcpus": spec.max_spot_vcpus,
        "allocation_vcpus": spec.allocation_vcpus,
        "reliable_count": spec.reliable_count,
        "reliable_vcpus": spec.reliable_vcpus,
        "ceiling": int(spec.ceiling),
        **billing_settings(spec.billing_model),
    }
    if scheme.rule is SchemeId.NONE:
        return {}
    return {name: value for name, value in asked.items() if name not in scheme.settings}


def run_cells(planned: BacktestPlan, *, threads: int, report: Report) -> Iterator[CellResult]:
    """Run the cells one after the other; yield each as soon as it is done. `report` receives the job-hours done."""
    field, spec = planned.field, planned.spec
    total = sum(len(starts_s) * hours for hours, starts_s in planned.starts_s.items())
    total *= len(planned.zones) * len(spec.compared)
    done = 0
    for cell in planned.cells:
        report(done, total, str(cell))
        scheme, starts_s = spec.scheme(cell.scheme), planned.starts_s[cell.hours]
        packed = field.packed(planned.zones[cell.zone])
        bound = cell.scheme == CLAIRVOYANT
        rows = []
        asked: dict[str, Any] = dict(_changes(scheme, spec))
        batch = len(starts_s) if bound else _BATCH  # the bound's bins begin with the first start
        for first in range(0, len(starts_s), batch):
            batch_starts_s = starts_s[first : first + batch]
            if bound:
                ran = run_bound(
                    packed[0], batch_starts_s, cell.hours, field.reference, scheme=scheme, threads=threads, **asked
                )
            else:
                ran = run_jobs(*packed, scheme, batch_starts_s, cell.hours, field.reference, threads=threads, **asked)
            rows.append(ran.rows)
            done += len(batch_starts_s) * cell.hours
            report(done, total, str(cell))
        yield CellResult(cell, starts_s, Outcomes(np.concatenate(rows), cell.hours, field.reference))
    report(total, total, "done")


def free_share(ran: CellResult) -> float:
    """Return the share of all machine time that was refunded; 0 where there was none."""
    used = [
        int(ran.outcomes.rows[:, by].sum())
        for by in (Outcome.FREE_VCPU_S, Outcome.PAID_VCPU_S, Outcome.ON_DEMAND_VCPU_S)
    ]
    return used[0] / sum(used) if sum(used) else 0.0


def machine_hours(ran: CellResult, vcpus: int) -> dict[str, float]:
    """Return the mean hours a job of machines of `vcpus` vCPUs, by payment: on_demand, paid, free."""
    by = {"on_demand": Outcome.ON_DEMAND_VCPU_S, "paid": Outcome.PAID_VCPU_S, "free": Outcome.FREE_VCPU_S}
    return {name: float(ran.outcomes.rows[:, column].mean()) / (HOUR_S * vcpus) for name, column in by.items()}
