"""The report of a backtest: the paper's figures on cost, redrawn from the results, and all tables."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.reports.pages.figures_page import BacktestPage, Picture, write
from proteus_spot.reports.pages.job_page import PageFigure, Table
from proteus_spot.reports.pictures.backtest_pictures import (
    Bars,
    PriceLine,
    by_zone,
    cost_and_time,
    price_lines,
    transitions,
    who_paid,
)
from proteus_spot.reports.pictures.figures import svg
from proteus_spot.studies.backtest import reliable_counts as reliable
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.backtest_spec import ALL, BacktestSpec, option
from proteus_spot.studies.backtest.job_runs import CellResult
from proteus_spot.studies.backtest.job_story import Story, job_story
from proteus_spot.studies.backtest.phases import dollars_for, phases
from proteus_spot.studies.backtest.result_tables import COLUMNS, NAMES, cells
from proteus_spot.studies.times import minute

#: As many days of prices as the paper's Figure 3 shows; as many markets.
_PRICE_DAYS, _PRICE_LINES = 6, 3


def write_report(
    target: Path, field: BacktestInputs, spec: BacktestSpec, runs: Sequence[CellResult], result: dict[str, Any]
) -> None:
    """Write the report to the file `target`; `result` is what ``--json`` writes."""
    write(page(field, spec, runs, result), target)


def page(field: BacktestInputs, spec: BacktestSpec, runs: Sequence[CellResult], result: dict[str, Any]) -> BacktestPage:
    """Return the page of the report."""
    fit, reference = result["fit"], result["reference"]
    warnings = [note for note in field.notes if "not honest" in note]
    return BacktestPage(
        title=Path(field.source).name if spec.prices is not None else field.source,
        period=(
            f"{fit['markets']} markets; fit {field.windows.fit}, evaluated {field.windows.evaluation} UTC; "
            f"{spec.starts} starts each (seed {spec.seed}); relative to {reference['vcpus']} vCPUs of "
            f"{reference['instance_type']} on demand at ${reference['usd_per_vcpu_hour']:.5f} a vCPU-hour"
        ),
        warnings=tuple(warnings),
        notes=tuple(_notes(field, result["runs"])),
        figures=_cards(spec, runs, result),
        pictures=tuple(_pictures(field, spec, runs, result)),
        tables=(
            Table(
                "outcomes",
                "All figures",
                COLUMNS,
                tuple(tuple(cells(run)) for run in result["runs"]),
                numeric=frozenset(range(NAMES, len(COLUMNS))),
            ),
            *_reliable(result.get("reliable", [])),
            Table("settings", "Settings", ("option", "value"), tuple(_settings(spec))),
        ),
    )


def bars(spec: BacktestSpec, rows: Sequence[dict[str, Any]], hours: int, *, baseline: bool) -> Bars:
    """Return the figures of the jobs of `hours` by scheme and zone; schemes that buy nothing only with `baseline`."""
    rows = [row for row in rows if row["hours"] == hours]
    names = [name for name in spec.compared if baseline or name == CLAIRVOYANT or spec.bids(name)]
    names = names or list(spec.compared)
    zones = tuple(dict.fromkeys(row["zone"] for row in rows))
    cells_by_key = {(row["scheme"], row["zone"]): row for row in rows}
    table = [[cells_by_key[name, zone] for zone in zones] for name in names]
    return Bars(
        groups=zones,
        names=tuple(names),
        cost=np.array([[row["relative_cost"]["mean"] for row in line] for line in table]),
        cost_error=np.array([[row["relative_cost"]["se"] for row in line] for line in table]),
        runtime=np.array([[row["relative_runtime"]["mean"] for row in line] for line in table]),
        hours=np.array(
            [[[row["machine_hours"][by] for by in ("on_demand", "paid", "free")] for row in line] for line in table]
        ),
    )


def typical_story(field: BacktestInputs, spec: BacktestSpec, runs: Sequence[CellResult]) -> Story | None:
    """Return a typical job: of median cost, if possible with an eviction; None if no scheme bids.

    Its scheme is BidBrain as published if that was run, else the last scheme that bids.
    """
    bidding = [ran for ran in runs if spec.bids(ran.cell.scheme)]
    bidding = [ran for ran in bidding if ran.outcomes.rows[:, Outcome.PURCHASES].any()]
    if not bidding:
        return None
    wanted = [ran for ran in bidding if spec.scheme(ran.cell.scheme).rule is SchemeId.PROTEUS] or bidding
    ran = min(reversed(wanted), key=lambda each: (each.cell.zone != ALL, each.cell.hours))
    evicted = np.flatnonzero(ran.outcomes.evictions > 0)
    among = evicted if evicted.size else np.arange(len(ran.starts_s))
    costs = ran.outcomes.rows[among, Outcome.COST_MICROS]
    middle = among[np.argsort(costs, kind="stable")[len(costs) // 2]]
    return job_story(field, spec, ran.cell, int(ran.starts_s[middle]))


def _cards(spec: BacktestSpec, runs: Sequence[CellResult], result: dict[str, Any]) -> tuple[PageFigure, ...]:
    hours, zone = max(spec.hours), runs[-1].cell.zone
    return tuple(
        PageFigure(
            row["scheme"],
            f"{row['relative_cost']['mean']:.1%}",
            f"of on-demand's cost ± {row['relative_cost']['se']:.1%}, {row['relative_runtime']['mean']:.0%} of its run "
            f"time; {hours} h, zone {zone}",
        )
        for row in result["runs"]
        if (row["hours"], row["zone"]) == (hours, zone)
    )


def _pictures(
    field: BacktestInputs, spec: BacktestSpec, runs: Sequence[CellResult], result: dict[str, Any]
) -> list[Picture]:
    rows, longest = result["runs"], max(spec.hours)
    every = bars(spec, rows, longest, baseline=True)
    pictures = [
        Picture(
            "1",
            "Cost and run time",
            f"Mean cost and run time of jobs of {longest} h in zone {every.groups[-1]}, against the reference cluster. "
            f"{_shares_text(every, -1)}. Lines on the bars are standard errors.",
            svg(cost_and_time(every, len(every.groups) - 1)),
        )
    ]
    story = typical_story(field, spec, runs)
    if story is not None:
        pictures += _job_pictures(field, spec, story)
    for number, hours in zip((8, 9), spec.hours, strict=False):
        by_scheme = bars(spec, rows, hours, baseline=False)
        pictures.append(
            Picture(
                str(number),
                f"Jobs of {hours} h by zone",
                f"Mean cost and run time of each scheme, each zone alone and all together; on demand is 100 %. In "
                f"{by_scheme.groups[-1]}: {_shares_text(by_scheme, -1)}.",
                svg(by_zone(by_scheme)),
            )
        )
    shortest = bars(spec, rows, min(spec.hours), baseline=False)
    pictures.append(
        Picture(
            "10",
            "Machine time by tier and refund",
            f"Machine-hours of a job of {min(spec.hours)} h, machines of {spec.machine_vcpus} vCPUs: on demand, spot "
            "and paid, spot and free because the hour was refunded on eviction.",
            svg(who_paid(shortest)),
        )
    )
    return [_numbered(number, picture) for number, picture in enumerate(pictures, start=1)]


def _numbered(number: int, picture: Picture) -> Picture:
    """Return a picture, whose key is the number of the paper's figure, with its number on this page."""
    return replace(
        picture,
        key=f"figure-{number}",
        title=f"Figure {number}: {picture.title}",
        caption=f"{picture.caption} Corresponds to Figure {picture.key} of the paper.",
    )


def _job_pictures(field: BacktestInputs, spec: BacktestSpec, story: Story) -> list[Picture]:
    window = field.windows.evaluation
    from_s = max(min(story.start_s - 2 * DAY_S, window.until_s - _PRICE_DAYS * DAY_S), window.from_s)
    until_s = min(from_s + _PRICE_DAYS * DAY_S, window.until_s)
    markets = list(dict.fromkeys(life.market for life in story.lives))[:_PRICE_LINES]
    kinds = [field.types[market.instance_type] for market in markets]
    lines = [
        PriceLine(
            str(market),
            field.traces[market],
            spec.machine_vcpus / kind.vcpu,
            kind.name,
            dollars_for(kind.on_demand_micros, spec.machine_vcpus, kind.vcpu),
        )
        for market, kind in zip(markets, kinds, strict=True)
    ]
    names = ", ".join(line.name for line in lines)
    job = f"{story.cell.scheme}, zone {story.cell.zone}, {story.cell.hours} h, from {minute(story.start_s)}"
    return [
        Picture(
            "3",
            "Spot prices over time",
            f"Prices of {names} for {spec.machine_vcpus} vCPUs, and on demand. The shaded part is the job below.",
            svg(price_lines(lines, from_s, until_s, (story.start_s, story.end_s), spec.machine_vcpus)),
        ),
        Picture(
            "6",
            "One footprint over time",
            f"Expected cost of work, dollars a vCPU-hour, after each change of what was held: {job}. A block is one "
            "allocation; red are the reliable machines, which do no work but are paid. Below each phase: h:mm after "
            "the start, and what was bought (+), taken or let go. "
            f"proteus backtest --scheme {story.cell.scheme} --zones {story.cell.zone} --hours {story.cell.hours} "
            "--explain with this start shows the whole job.",
            svg(transitions(phases(field, story))),
        ),
    ]


def _shares_text(figures: Bars, group: int) -> str:
    return "; ".join(
        f"{name} {figures.cost[index, group]:.1%} of the cost, {figures.runtime[index, group]:.0%} of the run time"
        for index, name in enumerate(figures.names)
    )


def _notes(field: BacktestInputs, rows: Sequence[dict[str, Any]]) -> list[str]:
    left = [
        f"{row['unfinished']} of {row['scheme']} ({row['hours']} h, {row['zone']})" for row in rows if row["unfinished"]
    ]
    return [
        *(note for note in field.notes if "not honest" not in note),
        *([f"Jobs that were given up, and count with what they cost until then: {'; '.join(left)}."] if left else []),
        "A job's cost is that of its spot allocations and reliable machines, its last hours by the seconds used.",
        "Starts are alike for every scheme and zone, uniform over the evaluation less the longest time of a job.",
        "± is the standard error of the mean over the starts; starts that lie near one another see the same prices.",
        "Unfinished: given up after 3.5 times the reference hours and 2 h.",
    ]


def _reliable(records: Sequence[dict[str, Any]]) -> list[Table]:
    if not records:
        return []
    figures = frozenset(range(reliable.NAMES, len(reliable.COLUMNS) - 1))
    return [
        Table(
            "reliable",
            "Reliable machines: the same jobs with each number of them",
            reliable.COLUMNS,
            tuple(reliable.rows(records)),
            numeric=figures,
        )
    ]


def _settings(spec: BacktestSpec) -> list[tuple[str, str]]:
    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "all"
        return "–" if value is None else str(value)

    return [(option(name), text(value)) for name, value in spec.model_dump().items()]
