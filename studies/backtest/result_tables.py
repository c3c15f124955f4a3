"""Results of a backtest: JSON and CSV for programs, rows of text for readers."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
from proteus_spot.bidding.backtest.outcomes import Outcome, Summary, summary
from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.infra.files import write_whole
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.job_runs import CellResult, free_share, machine_hours
from proteus_spot.studies.times import iso

#: Titles of the table's columns; the first two are names, the others figures.
COLUMNS = (
    "scheme",
    "zone",
    "h",
    "cost",
    "±",
    "p10",
    "p90",
    "run time",
    "p90 ",
    "on demand",
    "paid",
    "free",
    "free share",
    "evictions",
    "unfinished",
    "bound",
)
NAMES = 2


def figures(ran: CellResult, machine_vcpus: int, bound: CellResult | None = None) -> dict[str, Any]:
    """Return one row of ``runs``; `bound` is the clairvoyant's cell of the same zone and length, if it was run.

    Costs and run times are relative to the reference cluster; machine-hours are those of a job, of machines of
    `machine_vcpus`; dollars are those of a job.
    """
    outcomes = ran.outcomes
    cost = summary(outcomes.rows[:, Outcome.COST_MICROS])
    return {
        "scheme": ran.cell.scheme,
        "zone": ran.cell.zone,
        "hours": ran.cell.hours,
        "starts": len(outcomes.rows),
        "relative_cost": _four(summary(outcomes.relative_cost)),
        "relative_runtime": _four(summary(outcomes.relative_runtime)),
        "machine_hours": machine_hours(ran, machine_vcpus),
        "evictions_per_job": float(outcomes.evictions.mean()),
        "purchases_per_job": float(outcomes.rows[:, Outcome.PURCHASES].mean()),
        "free_share": free_share(ran),
        "clairvoyant_cost": None if bound is None else float(bound.outcomes.relative_cost.mean()),
        "unfinished": int(len(outcomes.rows) - outcomes.finished.sum()),
        "cost_usd": {"mean": cost.mean / 1e6, "total": to_dollars(int(outcomes.rows[:, Outcome.COST_MICROS].sum()))},
    }


def as_json(field: BacktestInputs, spec: BacktestSpec, runs: Sequence[CellResult], elapsed_s: float) -> dict[str, Any]:
    """Return the result as ``--json`` writes it."""
    windows, reference = field.windows, field.reference
    bounds = {(ran.cell.zone, ran.cell.hours): ran for ran in runs if ran.cell.scheme == CLAIRVOYANT}
    return {
        "fit": {
            **_window(windows.fit),
            "prices": field.source,
            "markets": len(field.markets),
            "overlaps_evaluation": windows.overlap,
        },
        "evaluation": _window(windows.evaluation),
        "reference": {
            "instance_type": reference.instance_type.name,
            "usd_per_vcpu_hour": to_dollars(reference.instance_type.on_demand_micros) / reference.instance_type.vcpu,
            "vcpus": reference.vcpus,
        },
        "settings": spec.model_dump(),
        "notes": list(field.notes),
        "runs": [figures(ran, spec.machine_vcpus, bounds.get((ran.cell.zone, ran.cell.hours))) for ran in runs],
        "elapsed_s": round(elapsed_s, 3),
    }


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``runs`` without dictionaries in it, as in ``relative_cost_mean``."""
    line: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            line |= {f"{name}_{part}": number for part, number in value.items()}
        else:
            line[name] = value
    return line


def write_csv(target: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows of ``runs`` to a CSV atomically."""
    text = io.StringIO()
    lines = [flat(row) for row in rows]
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write_whole(target, text.getvalue().encode())


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of ``runs`` as text, in the order of `COLUMNS`."""
    cost, runtime, hours = row["relative_cost"], row["relative_runtime"], row["machine_hours"]
    return [
        row["scheme"],
        row["zone"],
        str(row["hours"]),
        f"{cost['mean']:.4f}",
        f"{cost['se']:.4f}",
        f"{cost['p10']:.4f}",
        f"{cost['p90']:.4f}",
        f"{runtime['mean']:.3f}",
        f"{runtime['p90']:.3f}",
        f"{hours['on_demand']:.1f}",
        f"{hours['paid']:.1f}",
        f"{hours['free']:.1f}",
        f"{row['free_share']:.2f}",
        f"{row['evictions_per_job']:.2f}",
        str(row["unfinished"]),
        "" if row["clairvoyant_cost"] is None else f"{row['clairvoyant_cost']:.4f}",
    ]


def _four(figures: Summary) -> dict[str, float]:
    return asdict(figures)


def _window(window: TimeWindow) -> dict[str, str]:
    return {"from": iso(window.from_s), "until": iso(window.until_s)}
