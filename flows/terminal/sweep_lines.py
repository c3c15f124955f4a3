"""Output of `proteus sweep`: the table of trials, live on a terminal, and one line without a terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from proteus_spot.bidding.market.money import usd
from proteus_spot.flows.terminal.run_view import Display, clock_time
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table
from proteus_spot.reports.pages.sweep_page import TRIAL_COLUMNS, counts_text, state_text, trial_cells
from proteus_spot.reports.sweep_view import SweepView, params_text, value_text

#: Real seconds between lines without a terminal.
LINE_EVERY_S = 10.0
_COLUMNS = tuple(
    Column(title, rank, right=right, least=least)
    for title, rank, right, least in zip(
        TRIAL_COLUMNS,
        (0, 1, 2, 3, 0, 4, 5, 7, 9, 8, 6),
        (False, False, False, True, True, True, True, True, True, False, False),
        (None, None, 16, None, None, None, None, None, None, None, 20),
        strict=True,
    )
)
_STYLES = {"running": "", "finished": "green", "failed": "red", "evicted": "yellow"}


def head_lines(view: SweepView) -> list[str]:
    """Return the lines above the table: state, progress, money, the best trial."""
    budget = "" if view.budget_micros is None else f" of {usd(view.budget_micros, 2)}"
    is_paid = bool(view.prices or view.spent_micros or view.refunded_micros)
    money = (
        f"spent {usd(view.spent_micros)}{budget}, refunded {usd(view.refunded_micros)}, {view.evictions} evictions; "
    )
    done = f", {view.done_share:.0%} done" if view.state != "failed" else ""
    lines = [
        f"{view.sweep_id}: {state_text(view)}{done}, market time {clock_time(view.market_s)}",
        f"{money if is_paid else ''}{len(view.trials)} of {view.trial_count} trials: {counts_text(view) or 'none yet'}",
    ]
    if view.best is not None:
        best = f"best {view.metric} {value_text(view.best.value)} at step {view.best.steps} by {view.best.name}"
        lines.append(f"{best}: {params_text(view.best.params)}")
    return lines


def line(view: SweepView) -> str:
    """Return the sweep on one line."""
    best = "-" if view.best is None else f"{value_text(view.best.value)} ({view.best.name})"
    return (
        f"{clock_time(view.market_s)}  {view.state:<8}  {view.done_share:>4.0%}  {counts_text(view) or 'no trials'}  "
        f"best {best}  spent {usd(view.spent_micros)} (back {usd(view.refunded_micros)})  evictions {view.evictions}"
    )


def screen(view: SweepView) -> Group:
    """Return the sweep as a screen: its head and its trials, those with a machine first."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    shown = ("trial", "state", "steps", "metric", "prediction", "spent", "refunded", "machine")
    for title in shown:
        table.add_column(
            title, justify="right" if title in ("steps", "metric", "prediction", "spent", "refunded") else "left"
        )
    for trial in sorted(view.trials, key=lambda trial: (not trial.market, trial.number)):
        cells = dict(zip(TRIAL_COLUMNS, trial_cells(trial), strict=True))
        table.add_row(*(Text(cells[title]) for title in shown), style=_STYLES.get(trial.state, "dim"))
    return Group(*(Text(each) for each in head_lines(view)), Text(), table)


def show_view(view: SweepView) -> None:
    """Print the sweep on standard output: its head and the table of its trials, the best first."""
    show_lines(*head_lines(view))
    rows: Sequence[tuple[str, ...]] = [trial_cells(trial) for trial in view.ranked()]
    if rows:
        show_table(_COLUMNS, rows)


class SweepProgress(Display[SweepView]):
    """Shows a sweep that goes on."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet, screen, line, LINE_EVERY_S)
