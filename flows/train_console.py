"""What `proteus train` shows: a moment of the training as a line or a screen, and the closing table."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from flows.console import Display, clock_time

#: Without a terminal, one line this often (real seconds).
LINE_EVERY_S = 2.0


@dataclass(frozen=True)
class Moment:
    """A training at one moment. `status` is what the controller says, `last` what happened to a node last."""

    job_id: str
    status: Mapping[str, Any]
    last: str = ""

    @property
    def clock(self) -> str:
        """The clock, and the last one where it is known."""
        clocks = self.status["clocks"]
        return f"{self.status['clock']}" if clocks is None else f"{self.status['clock']}/{clocks}"

    @property
    def loss(self) -> str:
        """The loss of the last clock."""
        losses = self.status["losses"]
        return f"{losses[-1][1]:.4f}" if losses else "-"

    @property
    def nodes(self) -> str:
        """The nodes by state, as in ``3 ready, 1 lost``."""
        states = Counter(node["state"] for node in self.status["nodes"])
        return ", ".join(f"{count} {state}" for state, count in states.items()) or "none"

    @property
    def pace(self) -> str:
        """Seconds per clock, lately."""
        pace_s = self.status["seconds_per_clock"]
        return "-" if pace_s is None else f"{pace_s:.4f}"


def line(moment: Moment) -> str:
    """Return a moment on one line."""
    status = moment.status
    return (
        f"{clock_time(status['elapsed_s'] or 0.0)}  {status['state']:<8}  clock {moment.clock:>9}  loss {moment.loss}  "
        f"s/clock {moment.pace}  nodes {moment.nodes}"
    )


def screen(moment: Moment) -> Group:
    """Return a moment as a screen."""
    status = moment.status
    head = Table.grid(padding=(0, 3))
    head.add_row(
        f"[bold]{moment.job_id}[/]", clock_time(status["elapsed_s"] or 0.0), status["state"], f"stage {status['stage']}"
    )
    head.add_row(f"clock {moment.clock}", f"loss {moment.loss}", f"{moment.pace} s a clock", "")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("node", "tier", "state", "partitions", "running"):
        table.add_column(title, style="dim" if title == "tier" else "")
    for node in status["nodes"]:
        gone = "dim" if node["gone"] else ""
        shown = (node["name"], node["tier"], node["state"], str(len(node["partitions"])), str(node["running"]))
        table.add_row(*shown, style=gone)
    words = Text(status["reason"] or moment.last, style="italic", overflow="fold")
    return Group(head, Text(), table, Text(), words)


def display(quiet: bool) -> Display[Moment]:
    """Return what shows moments; `quiet`: on standard error."""
    return Display(quiet, screen, line, LINE_EVERY_S)


def closing_table(figures: Mapping[str, Any]) -> Table:
    """Return the table at the end, from the figures that `--json` writes."""
    table = Table(title=f"{figures['job']}: {figures['state']}", title_justify="left", show_header=False)
    table.add_column("what", style="dim")
    table.add_column("figure", justify="right")
    losses, clocks, seconds = figures["losses"] or [], figures["clocks"], figures["seconds"]
    table.add_row("clocks", str(clocks))
    table.add_row("seconds", f"{seconds:.2f}")
    table.add_row("seconds per clock", f"{seconds / clocks:.4f}" if clocks else "-")
    table.add_row("loss", _figure(losses[-1][1] if losses else None))
    for name, value in (figures["metrics"] or {}).items():
        table.add_row(f"held-out {name}", _figure(value))
    table.add_row("micro-tasks repeated / lost", f"{figures['repeated_micro_tasks']} / {figures['lost_micro_tasks']}")
    table.add_row("joins, notices, kills, drains", str(len(figures["events"])))
    return table


def _figure(value: float | None) -> str:
    """Return a figure; a dash where there is none, or it was not finite."""
    return "-" if value is None else f"{value:.4f}"
