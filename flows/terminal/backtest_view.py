"""Terminal output of a backtest: the table of schemes and the event log of one job."""

from typing import TYPE_CHECKING, Any

from proteus_spot.flows.terminal.tables import Column, show_lines, show_table

if TYPE_CHECKING:
    from proteus_spot.studies.backtest.job_story import Story

#: Ranks (`flows.terminal.tables.Column`) of the columns of `studies.backtest.result_tables.COLUMNS`.
_RANKS = (0, 0, 0, 0, 4, 10, 9, 1, 8, 5, 6, 7, 11, 2, 3, 12)
#: Ranks of the columns of `studies.backtest.reliable_counts.COLUMNS`.
_RELIABLE_RANKS = (0, 0, 0, 0, 5, 6, 3, 7, 0, 4, 2)


def show_outcomes(result: dict[str, Any]) -> None:
    """Show the table of a backtest, from the result that ``--json`` writes."""
    from proteus_spot.studies.backtest.result_tables import COLUMNS, NAMES, cells

    runs, fit, evaluation = result["runs"], result["fit"], result["evaluation"]
    reference = result["reference"]
    rows: list[list[str]] = []
    for index, run in enumerate(runs):
        following = runs[index + 1] if index + 1 < len(runs) else None
        rows.append(cells(run))
        if following is not None and (run["zone"], run["hours"]) != (following["zone"], following["hours"]):
            rows.append([])
    show_table(
        [
            Column(name, rank, right=index >= NAMES)
            for index, (name, rank) in enumerate(zip(COLUMNS, _RANKS, strict=True))
        ],
        rows,
        title=(
            f"{fit['prices']}: {fit['markets']} markets, fit {_span(fit)}, evaluated {_span(evaluation)}; "
            f"{runs[0]['starts']} starts each"
        ),
        caption=(
            f"cost and run time against {reference['vcpus']} vCPUs of {reference['instance_type']} on demand, ± the "
            "standard error; machine-hours a job, on demand / paid / free (refunded), of "
            f"{result['settings']['machine_vcpus']} vCPUs each; {result['elapsed_s']:.1f} s"
        ),
    )


def show_reliable(records: list[dict[str, Any]]) -> None:
    """Show the table of the numbers of reliable machines, from the records that ``--json`` writes."""
    from proteus_spot.studies.backtest.reliable_counts import COLUMNS, NAMES, rows

    columns = [
        Column(name, rank, right=index >= NAMES)
        for index, (name, rank) in enumerate(zip(COLUMNS[:-1], _RELIABLE_RANKS[:-1], strict=True))
    ]
    show_table(
        [*columns, Column("", _RELIABLE_RANKS[-1], least=24)],
        list(rows(records)),
        title="Reliable machines: the same jobs with each number of them",
        caption="ratio: transient vCPUs for each reliable one; cost and run time as above",
    )


def _span(window: dict[str, str]) -> str:
    return f"{window['from'][:16].replace('T', ' ')} to {window['until'][:16].replace('T', ' ')}"


def story_lines(story: "Story") -> None:
    """Show the events of one job, one per line."""
    from proteus_spot.studies.backtest.job_story import story_json, text_of
    from proteus_spot.studies.times import clock

    record = story_json(story)
    show_lines(
        f"{story.cell}, from {record['start']}: {record['relative_cost']:.1%} of the cost and "
        f"{record['relative_runtime']:.1%} of the run time on demand"
    )
    for happening in story.happenings:
        show_lines(
            f"{clock(happening.at_s, story.start_s)}  {happening.held_vcpus:>4} vCPU  {text_of(happening, story)}"
        )
        if happening.decision is not None:
            before_s = happening.at_s - (happening.decided_s or happening.at_s)
            _show_decision(happening.decision, before_s)
    show_lines(
        f"cost ${record['cost_usd']:.4f}: spot ${record['spot_usd']:.4f}, machines on demand "
        f"${record['reliable_usd']:.4f}; {record['outcome']['purchases']} purchases, "
        f"{record['outcome']['evictions']} evictions"
    )


def _show_decision(decision: Any, before_s: int) -> None:
    from proteus_spot.bidding.market.money import usd

    when = f", {before_s} s before" if before_s > 0 else ""
    show_lines(f"            why{when}: {decision.reason}", style="dim")
    for candidate in decision.candidates[1:4]:
        show_lines(
            f"            not {candidate.count} x {candidate.market} at {usd(candidate.price_micros)}, bid "
            f"{usd(candidate.bid_micros)} (eviction {candidate.eviction_prob:.0%}): {candidate.why_not}",
            style="dim",
        )
