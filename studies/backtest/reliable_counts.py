"""The best number of reliable machines for each scheme: the same jobs are simulated with each number."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from proteus_spot.bidding.backtest.outcomes import summary
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.economics.reliable_tier import ReliableNumber, cheapest_number, load_tier, weigh
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.job_runs import Cell, CellResult, plan, run_cells
from proteus_spot.studies.market_data.trace_files import Report

#: Titles of the table's columns; the first two are names, the last one a reason.
COLUMNS = ("scheme", "zone", "h", "machines", "ratio", "stage", "cost", "±", "with failures", "run time", "")
NAMES = 2


@dataclass(frozen=True)
class Numbers:
    """One scheme, zone and length with each number of reliable machines: its cells, and how they are weighed."""

    cell: Cell
    runs: tuple[CellResult, ...]
    weighed: tuple[ReliableNumber, ...]


def tiered(spec: BacktestSpec) -> list[str]:
    """Return the schemes that hold reliable machines and leave their number open; none if no number is requested.

    Raises
    ------
    InputError
        If numbers are requested, and every scheme fixes its own.
    """
    if not spec.reliable_counts:
        return []
    names = [name for name in spec.compared if spec.bids(name) and "reliable_count" not in spec.scheme(name).settings]
    if not names:
        raise InputError(
            "--reliable-counts: each scheme that is compared fixes the number of its reliable machines, or has none; "
            "give a --scheme such as best, and no reliable_count in an --elasticity"
        )
    return names


def run_numbers(
    field: BacktestInputs,
    spec: BacktestSpec,
    done: Sequence[CellResult],
    *,
    threads: int,
    report: Report,
) -> list[Numbers]:
    """Run the cells of the schemes with reliable machines again with each number; `done` are the cells already run.

    Parameters
    ----------
    report : receives the job-hours done, number by number.
    """
    names, runs = tiered(spec), {}
    for count in spec.reliable_counts if names else ():
        if count == spec.reliable_count:
            runs[count] = {ran.cell: ran for ran in done if ran.cell.scheme in names}
            continue
        asked = spec.model_copy(update={"schemes": names, "reliable_count": count})
        progress = partial(_report_count, report, count)
        cells = run_cells(plan(field, asked), threads=threads, report=progress)
        runs[count] = {ran.cell: ran for ran in cells}
    cells_run = [ran.cell for ran in done if ran.cell.scheme in names]
    return [
        _weighed(field, spec, cell, {count: ran[cell] for count, ran in sorted(runs.items())}) for cell in cells_run
    ]


def _report_count(report: Report, count: int, done: int, total: int, what: str) -> None:
    report(done, total, f"{count} reliable: {what}")


def _weighed(field: BacktestInputs, spec: BacktestSpec, cell: Cell, runs: dict[int, CellResult]) -> Numbers:
    standard = spec.scheme(cell.scheme).rule is SchemeId.STANDARD  # buys the reference's vCPUs, not the cap
    tier = load_tier(
        spec.reliable_tier,
        transient_vcpus=field.reference.vcpus if standard else spec.max_spot_vcpus,
        vcpus=spec.reliable_vcpus,
    )
    costs = {count: float(ran.outcomes.relative_cost.mean()) for count, ran in runs.items()}
    return Numbers(cell, tuple(runs.values()), weigh(tier, costs))


def as_records(numbers: Sequence[Numbers]) -> list[dict[str, Any]]:
    """Return ``reliable`` as ``--json`` writes it; costs and run times are relative to the reference cluster."""
    return [
        {
            "scheme": each.cell.scheme,
            "zone": each.cell.zone,
            "hours": each.cell.hours,
            "cheapest": None if (best := cheapest_number(each.weighed)) is None else best.count,
            "numbers": [_record(number, ran) for number, ran in zip(each.weighed, each.runs, strict=True)],
        }
        for each in numbers
    ]


def _record(number: ReliableNumber, ran: CellResult) -> dict[str, Any]:
    outcomes = ran.outcomes
    return {
        "count": number.count,
        "ratio": number.ratio,
        "stage": number.stage,
        "relative_cost": asdict(summary(outcomes.relative_cost)),
        "relative_runtime": asdict(summary(outcomes.relative_runtime)),
        "unfinished": int(len(outcomes.rows) - outcomes.finished.sum()),
        "lost_share": number.lost_share,
        "cost_with_failures": number.cost,
        "why_not": number.why_not,
    }


def rows(records: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Give ``reliable`` as rows of text, in the order of `COLUMNS`."""
    for each in records:
        for number in each["numbers"]:
            cost, runtime = number["relative_cost"], number["relative_runtime"]
            yield (
                each["scheme"],
                each["zone"],
                str(each["hours"]),
                str(number["count"]),
                f"{number['ratio']:.1f}",
                str(number["stage"]),
                f"{cost['mean']:.4f}",
                f"{cost['se']:.4f}",
                f"{number['cost_with_failures']:.4f}",
                f"{runtime['mean']:.3f}",
                number["why_not"] or ("the cheapest that suffices" if number["count"] == each["cheapest"] else ""),
            )
