"""What a backtest shows on a terminal: how far it is, the table, the story of one job."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flows.terminal.output import output_console

if TYPE_CHECKING:
    from tasks.backtest.job_story import Story

#: Columns where there is no terminal.
_WIDTH = 170


def notes(texts: Iterable[str]) -> None:
    """Say on standard error what the reader of the figures must know."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for text in texts:
        console.print(f"note: {text}", markup=False)


def say(what: Any) -> None:
    """Show something on standard output."""
    output_console(_WIDTH).print(what)


def outcome_table(result: dict[str, Any]) -> Table:
    """Return the table of a backtest, from what ``--json`` writes."""
    from tasks.backtest.tables import COLUMNS, NAMES, cells

    runs, fit, evaluation = result["runs"], result["fit"], result["evaluation"]
    reference = result["reference"]
    table = Table(
        title=(
            f"{fit['prices']}: {fit['markets']} markets, fit {_span(fit)}, evaluated {_span(evaluation)}; "
            f"{runs[0]['starts']} starts each"
        ),
        title_justify="left",
        caption=(
            f"cost and run time against {reference['vcpus']} vCPUs of {reference['instance_type']} on demand, ± the "
            "standard error; machine-hours a job, on demand / paid / free (refunded), of "
            f"{result['settings']['machine_vcpus']} vCPUs each; {result['elapsed_s']:.1f} s"
        ),
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for index, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if index < NAMES else "right", no_wrap=True)
    for index, run in enumerate(runs):
        following = runs[index + 1] if index + 1 < len(runs) else run
        ends = (run["zone"], run["hours"]) != (following["zone"], following["hours"])
        table.add_row(*cells(run), end_section=ends)
        if ends:
            table.add_row()
    return table


def reliable_table(records: list[dict[str, Any]]) -> Table:
    """Return the table of the numbers of reliable machines, from what ``--json`` writes."""
    from tasks.backtest.reliable_counts import COLUMNS, NAMES, rows

    table = Table(
        title="Reliable machines: the same jobs with each number of them",
        title_justify="left",
        caption="ratio: transient vCPUs for each reliable one; cost and run time as above",
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for index, name in enumerate(COLUMNS):
        last = index == len(COLUMNS) - 1
        table.add_column(name, justify="left" if index < NAMES or last else "right", no_wrap=not last)
    for row in rows(records):
        table.add_row(*row)
    return table


def _span(window: dict[str, str]) -> str:
    return f"{window['from'][:16].replace('T', ' ')} to {window['until'][:16].replace('T', ' ')}"


def story_lines(story: "Story") -> None:
    """Tell one job, a line for each thing that happened."""
    from tasks.backtest.job_story import story_json, text_of
    from tasks.times import clock

    told = story_json(story)
    console = output_console(_WIDTH)
    console.print(
        f"{story.cell}, from {told['start']}: {told['relative_cost']:.1%} of the cost and {told['relative_runtime']:.1%} "
        "of the run time on demand",
        markup=False,
        soft_wrap=True,
    )
    for happening in story.happenings:
        line = f"{clock(happening.at_s, story.start_s)}  {happening.held_vcpus:>4} vCPU  {text_of(happening, story)}"
        console.print(line, markup=False, soft_wrap=True)
        if happening.decision is not None:
            before_s = happening.at_s - (happening.decided_s or happening.at_s)
            _show_decision(console, happening.decision, before_s)
    console.print(
        f"cost ${told['cost_usd']:.4f}: spot ${told['spot_usd']:.4f}, machines on demand ${told['reliable_usd']:.4f}; "
        f"{told['outcome']['purchases']} purchases, {told['outcome']['evictions']} evictions",
        markup=False,
        soft_wrap=True,
    )


def _show_decision(console: Console, decision: Any, before_s: int) -> None:
    from bidding.market.money import usd

    when = f", {before_s} s before" if before_s > 0 else ""
    console.print(f"            why{when}: {decision.reason}", markup=False, soft_wrap=True, style="dim")
    for candidate in decision.candidates[1:4]:
        console.print(
            f"            not {candidate.count} x {candidate.market} at {usd(candidate.price_micros)}, bid "
            f"{usd(candidate.bid_micros)} (eviction {candidate.eviction_prob:.0%}): {candidate.why_not}",
            markup=False,
            soft_wrap=True,
            style="dim",
        )
