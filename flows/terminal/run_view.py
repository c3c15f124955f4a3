"""Output of a run: a live screen on a terminal, else plain lines; the table of the result."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proteus_spot.bidding.market.money import usd
from proteus_spot.tasks.reports.job_snapshot import Snapshot

S = TypeVar("S")

#: Real seconds between lines without a terminal.
PLAIN_EVERY_S = 10.0


def clock_time(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def spent_text(spent_micros: int, is_known: bool) -> str:
    """Return the amount spent as text; it is unknown until the first charge is booked."""
    return usd(spent_micros) if is_known else "not known yet"


def plain_line(shot: Snapshot) -> str:
    """Return `shot` on one line."""
    held = ", ".join(f"{h.count}x{h.market}" for h in shot.holdings if h.state == "held") or "nothing"
    loss = "-" if shot.loss is None else f"{shot.loss:.4f}"
    return (
        f"{clock_time(shot.market_s)}  {shot.state:<8}  clock {shot.clock:>5}  loss {loss}  "
        f"spent {_spent(shot)} (back {usd(shot.refunded_micros)})  nodes {shot.nodes_ready}{_offered(shot)}  "
        f"evictions {shot.evictions}  holding {held}"
    )


def panel(shot: Snapshot) -> Group:
    """Return `shot` as a screen."""
    head = Table.grid(padding=(0, 3))
    loss = "-" if shot.loss is None else f"{shot.loss:.4f}"
    head.add_row(
        f"[bold]{shot.job_id}[/]", f"market time {clock_time(shot.market_s)}", shot.state, f"stage {shot.stage}"
    )
    head.add_row(f"clock {shot.clock}", f"loss {loss}", f"nodes ready {shot.nodes_ready}{_offered(shot)}", "")
    head.add_row(
        f"spent {_spent(shot)}",
        f"refunded {usd(shot.refunded_micros)}",
        f"evictions {shot.evictions}",
        f"acquired {shot.acquisitions}, hour ends {shot.hour_end_decisions}",
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("allocation", "machines", "tier", "bid", "state"):
        table.add_column(title, style="dim" if title == "tier" else "")
    for h in shot.holdings:
        table.add_row(h.market, str(h.count), h.tier, h.bid, h.state, style="" if h.state == "held" else "dim")
    return Group(head, Text(), table, Text(), Text(shot.last_decision, style="italic", overflow="fold"))


def _offered(shot: Snapshot) -> str:
    return f" ({shot.nodes_offered} offered for release)" if shot.nodes_offered else ""


def _spent(shot: Snapshot) -> str:
    return spent_text(shot.spent_micros, shot.spent_is_known)


class Display(Generic[S]):
    """Shows snapshots as they arrive: a live screen on a terminal, else a line at intervals.

    Parameters
    ----------
    quiet : show on standard error, because standard output is for JSON.
    screen, line : functions that render a snapshot for a terminal, and for one line without a terminal.
    every_s : real seconds between lines.
    """

    def __init__(
        self, quiet: bool, screen: Callable[[S], RenderableType], line: Callable[[S], str], every_s: float
    ) -> None:
        self._screen, self._line, self._every_s = screen, line, every_s
        self.console = Console(stderr=quiet, highlight=False, soft_wrap=True)
        self._live = Live(console=self.console, refresh_per_second=4, transient=True)
        self._last_line_s = float("-inf")

    def show(self, shot: S, now_s: float) -> None:
        """Show `shot`; `now_s` is real time."""
        if self.console.is_terminal and not self.console.is_dumb_terminal:  # which shows no screen that changes
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._screen(shot))
        elif now_s - self._last_line_s >= self._every_s:
            self._last_line_s = now_s
            self.console.print(self._line(shot), markup=False)

    def say(self, text: str) -> None:
        """Print one line that stays."""
        self.console.print(text, markup=False)  # a path may have brackets

    def close(self) -> None:
        """Restore the terminal."""
        if self._live.is_started:
            self._live.stop()


class RunProgress(Display[Snapshot]):
    """Shows a run on a simulated market."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet, panel, plain_line, PLAIN_EVERY_S)


def _figure(value: float | None, form: str = "") -> str:
    """Return a figure as text; a dash if absent, because the job was stopped early or held nothing."""
    return "-" if value is None else format(value, form)


def _deadline(late_s: float) -> str:
    return f"missed by {clock_time(late_s)}" if late_s else "kept"


def result_table(result: Mapping[str, Any]) -> Table:
    """Return the closing table of a run, from the figures that `--json` writes."""
    table = Table(title=f"{result['job']}: {result['state']}", title_justify="left", show_header=False)
    table.add_column("what", style="dim")
    table.add_column("figure", justify="right")
    hours, figures = result["machine_hours"], result.get("metrics", {})
    rows = [
        *((("why", result["why"]),) if result.get("why") else ()),
        ("cost", f"${result['ledger_usd']:.4f}"),
        ("the same work on demand", f"${result['on_demand_usd']:.4f}"),
        ("cost against on-demand", _figure(result["cost_vs_on_demand"], ".1%")),
        ("market time", clock_time(result["market_seconds"])),
        *((("deadline", _deadline(result["late_seconds"])),) if result.get("late_seconds") is not None else ()),
        ("real time", f"{result['real_seconds']:.0f} s"),
        (
            "machine-hours on demand / paid / free",
            f"{hours['on_demand']:.2f} / {hours['paid']:.2f} / {hours['free']:.2f}",
        ),
        ("acquisitions", str(result["acquisitions"])),
        ("hour's-end decisions", str(result["hour_end_decisions"])),
        ("evictions", str(result["evictions"])),
        ("clocks", _figure(result["clocks"])),
        ("tasks repeated / lost", f"{result['repeated_micro_tasks']} / {result['lost_micro_tasks']}"),
        *((f"held-out {name}", _figure(value, ".4g")) for name, value in figures.items() if name != "accuracy"),
    ]
    if "accuracy" in figures or not figures:
        rows.append(("held-out accuracy", _figure(result["accuracy"], ".4f")))
    for what, figure in rows:
        table.add_row(what, figure)
    return table
