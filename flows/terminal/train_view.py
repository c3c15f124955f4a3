"""Output of `proteus train`: a snapshot as a line or a screen, and the table of the result."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from proteus_spot.flows.terminal.run_view import Display, clock_time
from proteus_spot.psengine.telemetry.formatting import format_bytes, format_ranges
from proteus_spot.psengine.telemetry.memory_use import total_bytes
from proteus_spot.tasks.local_nodes.explanations import Line

#: Real seconds between lines without a terminal.
LINE_EVERY_S = 2.0
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class TrainingMoment:
    """A training at one moment: the controller's `status`, and `last`, the last event of a node."""

    job_id: str
    status: Mapping[str, Any]
    last: str = ""

    @property
    def clock(self) -> str:
        """The clock, and the final clock if the training has one."""
        clocks = self.status["clocks"]
        return f"{self.status['clock']}" if clocks is None else f"{self.status['clock']}/{clocks}"

    @property
    def passes(self) -> str:
        """The passes over the data, as in ``  pass 2.5/10``; empty if the application does not count them."""
        done, wanted = self.status.get("passes_done"), self.status.get("passes")
        return "" if done is None else f"  pass {done:.4g}" + ("" if wanted is None else f"/{wanted}")

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

    @property
    def held_out(self) -> str:
        """The newest evaluation on the held-out part, as in ``accuracy 0.9722 (clock 40)``; empty before the first."""
        for clock, figures in self.status["metrics"]:
            metrics = ", ".join(f"{name} {_figure(value)}" for name, value in figures.items())
            return f"{metrics} (clock {clock})"
        return ""


def line(moment: TrainingMoment) -> str:
    """Return a moment on one line; its end says what is waited for, as in ``saving the model``."""
    status = moment.status
    reason = f"  {status['reason']}" if status["reason"] else ""
    return (
        f"{clock_time(status['elapsed_s'] or 0.0)}  {status['state']:<8}  clock {moment.clock:>9}{moment.passes}  "
        f"loss {moment.loss}  s/clock {moment.pace}  stage {status['stage']}  nodes {moment.nodes}{reason}"
    )


def screen(moment: TrainingMoment) -> Group:
    """Return a moment as a screen."""
    status = moment.status
    head = Table.grid(padding=(0, 3))
    head.add_row(
        f"[bold]{moment.job_id}[/]", clock_time(status["elapsed_s"] or 0.0), status["state"], f"stage {status['stage']}"
    )
    head.add_row(f"clock {moment.clock}{moment.passes}", f"loss {moment.loss}", f"{moment.pace} s a clock", "")
    moved = format_bytes(sum(status["bytes_moved"].values()))
    head.add_row("held out", moment.held_out or "-", f"moved {moved}", "")
    pace = Text.assemble(("time of the last clocks  ", "dim"), bars(status["recent_seconds"]))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("node", "tier", "state", "partitions", "running", "serves", "keeps"):
        table.add_column(title, style="dim" if title == "tier" else "")
    serves, keeps = _shards_by(status["shards"], "node"), _shards_by(status["shards"], "backup")
    for node in status["nodes"]:
        gone = "dim" if node["gone"] else ""
        counts = (str(count or "") for count in (len(node["partitions"]), node["running"]))
        held = (serves.get(node["name"], ""), keeps.get(node["name"], ""))
        table.add_row(node["name"], node["tier"], node["state"], *counts, *held, style=gone)
    words = Text(status["reason"] or moment.last, style="italic", overflow="fold")
    return Group(head, Text(), pace, Text(), table, Text(), words)


def bars(values: Sequence[float]) -> str:
    """Return values as a row of bars, scaled to the largest; empty if there are none."""
    highest = max(values, default=0.0)
    top = len(_BARS) - 1
    return "".join(_BARS[round(value / highest * top) if highest > 0 else 0] for value in values)


def event_log_table(title: str, lines: Sequence[Line]) -> Table:
    """Return the event log of a node or a shard, one row per event."""
    table = Table(title=f"{title}: {len(lines)} lines", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("clock", justify="right", style="dim")
    table.add_column("second", justify="right", style="dim")
    table.add_column("what", overflow="fold")
    for line in lines:
        table.add_row(str(line.clock), f"{line.at_s:.3f}", Text(line.text))
    return table


def _shards_by(shards: Sequence[Mapping[str, Any]], role: str) -> dict[str, str]:
    """Return {node: the shards it serves or keeps, as runs}."""
    by_node: dict[str, list[int]] = {}
    for shard in shards:
        by_node.setdefault(shard[role], []).append(shard["shard"])
    return {name: format_ranges(numbers) for name, numbers in by_node.items() if name is not None}


def display(quiet: bool) -> Display[TrainingMoment]:
    """Return the display of a training; `quiet`: on standard error."""
    return Display(quiet, screen, line, LINE_EVERY_S)


def closing_table(figures: Mapping[str, Any]) -> Table:
    """Return the table at the end, from the figures that `--json` writes."""
    table = Table(title=f"{figures['job']}: {figures['state']}", title_justify="left", show_header=False)
    table.add_column("what", style="dim")
    table.add_column("figure", justify="right")
    losses, clocks, seconds = figures["losses"] or [], figures["clocks"], figures["seconds"]
    table.add_row("clocks", str(clocks))
    if figures.get("passes") is not None:
        table.add_row("passes over the data", f"{figures['passes']:.4g}")
    if "converged" in figures:
        table.add_row("ended", figures["converged"])
    table.add_row("seconds", f"{seconds:.2f}")
    table.add_row("seconds per clock", f"{seconds / clocks:.4f}" if clocks else "-")
    table.add_row("loss", _figure(losses[-1][1] if losses else None))
    for name, value in (figures["metrics"] or {}).items():
        table.add_row(f"held-out {name}", _figure(value))
    table.add_row("tasks repeated / lost", f"{figures['repeated_micro_tasks']} / {figures['lost_micro_tasks']}")
    table.add_row("bytes moved", _moved(figures.get("bytes_moved") or {}))
    if totals := total_bytes(figures.get("memory_by_clock") or ()):
        table.add_row("memory of all nodes", f"{format_bytes(totals[-1])}, {format_bytes(max(totals))} at most")
    for event, stall in _worst(figures.get("stalls") or []).items():
        table.add_row(f"longest stall by a {event}", stall)
    if releases := figures.get("releases"):
        longest = max(releases, key=itemgetter("seconds"))
        table.add_row("longest release", f"{longest['seconds']:.2f} s ({longest['node']}), of {len(releases)}")
    table.add_row("times that all went back", str(len(figures.get("went_back") or [])))
    table.add_row("joins, notices, kills, drains", str(len(figures["events"])))
    return table


def _moved(by_kind: Mapping[str, int]) -> str:
    """Return the bytes moved, and the three largest kinds."""
    most = sorted(((count, kind) for kind, count in by_kind.items() if count), reverse=True)[:3]
    kinds = ", ".join(f"{kind.replace('_', ' ')} {format_bytes(count)}" for count, kind in most)
    return format_bytes(sum(by_kind.values())) + (f": {kinds}" if kinds else "")


def _worst(stalls: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the longest stall by kind of change."""
    found: dict[str, float | None] = {}
    for stall in stalls:
        before = found.setdefault(stall["event"], None)
        if stall["stall_ms"] is not None:
            found[stall["event"]] = max(before or 0.0, stall["stall_ms"])
    return {event: "-" if ms is None else f"{ms:.1f} ms" for event, ms in found.items()}


def _figure(value: float | None) -> str:
    """Return a figure as text; a dash if it is absent or was not finite."""
    return "-" if value is None else f"{value:.4f}"
