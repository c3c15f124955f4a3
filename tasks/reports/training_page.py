"""The page of a training on this machine: plots over time and tables, from its `--json` figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proteus_spot.psengine.telemetry.formatting import format_bytes, format_ranges
from proteus_spot.psengine.telemetry.memory_use import total_bytes
from proteus_spot.reports.pages.figures_page import BacktestPage, Picture, write
from proteus_spot.reports.pages.job_page import PageFigure, Table
from proteus_spot.reports.pictures.training_pictures import training_svg


def write_training_report(figures: Mapping[str, Any], path: Path) -> None:
    """Write the page of a job that has ended to a file atomically; `InputError` if it cannot be written."""
    write(training_page(figures), path)


def training_page(figures: Mapping[str, Any]) -> BacktestPage:
    """Return the page. `figures` are those of `tasks.local_nodes.node_training.figures_of`."""
    clocks, seconds = figures["clocks"], figures["seconds"] or 0.0
    losses = figures["losses"] or []
    cards = [
        PageFigure("clocks", str(clocks)),
        *_pass_cards(figures),
        PageFigure("seconds", f"{seconds:.2f}", f"{seconds / clocks:.4f} a clock" if clocks else ""),
        PageFigure("loss", _number(losses[-1][1]) if losses else "-", "training, last clock"),
        *(PageFigure(f"held-out {name}", _number(value)) for name, value in (figures["metrics"] or {}).items()),
        PageFigure(
            "moved", format_bytes(sum((figures["bytes_moved"] or {}).values())), "over the network and from the store"
        ),
        *_memory_cards(figures),
        PageFigure("tasks lost", str(figures["lost_micro_tasks"]), f"repeated: {figures['repeated_micro_tasks']}"),
        *(
            PageFigure(name.replace("_", " "), "-" if value is None else f"{value:,.6g}", "a figure of the driver")
            for name, value in (figures.get("driver_figures") or {}).items()
        ),
    ]
    picture = Picture(
        "time",
        "The training over time",
        "Seconds of training on one axis. Time per clock and a red line where nodes came or went; the loss and, "
        "dotted, what was held out; nodes that work by tier, and the stage; the memory of all nodes; the server of "
        "each shard, and its backup if there is one.",
        training_svg(figures),
    )
    return BacktestPage(
        title=str(figures["job"]),
        period=f"{figures['state']}; model {figures['model']}",
        warnings=(),
        notes=(
            "A stall is what the clocks in which a change was carried out took beyond undisturbed ones near them.",
            "Bytes are those of arrays; a node that is its own server moves nothing.",
        ),
        figures=tuple(cards),
        pictures=(picture,),
        tables=tuple(
            table
            for table in (
                stall_table(figures),
                _bytes(figures),
                _nodes(figures),
                _went_back(figures),
                _remarks(figures),
            )
            if table.rows
        ),
        kind="training",
    )


def _pass_cards(figures: Mapping[str, Any]) -> list[PageFigure]:
    passes = figures.get("passes")
    return [] if passes is None else [PageFigure("passes", f"{passes:.4g}", "over the data")]


def _memory_cards(figures: Mapping[str, Any]) -> list[PageFigure]:
    totals = total_bytes(figures.get("memory_by_clock") or ())
    if not totals:
        return []
    most = format_bytes(max(totals))
    return [PageFigure("memory", format_bytes(totals[-1]), f"of all nodes, at the end; {most} at most")]


def stall_table(figures: Mapping[str, Any]) -> Table:
    """Return the stalls of the remaining nodes, by change."""
    rows = tuple(
        (
            stall["event"],
            ", ".join(stall["nodes"]),
            f"{stall['second']:.3f}",
            "-" if stall["clocks"] is None else format_ranges(range(stall["clocks"][0], stall["clocks"][1] + 1)),
            _number(stall["usual_ms"], 2),
            _number(stall["stall_ms"], 2),
        )
        for stall in figures.get("stalls") or []
    )
    columns = ("change", "nodes", "second", "clocks", "usual clock, ms", "stall, ms")
    return Table("stalls", "Stalls of the remaining nodes", columns, rows, frozenset({2, 3, 4, 5}))


def _bytes(figures: Mapping[str, Any]) -> Table:
    moved = {**(figures["bytes_moved"] or {}), "kept, so not read": figures["bytes_not_read"] or 0}
    rows = tuple((kind.replace("_", " "), f"{count:,}", format_bytes(count)) for kind, count in moved.items())
    return Table("bytes", "Bytes moved by kind", ("kind", "bytes", ""), rows, frozenset({1, 2}))


def _nodes(figures: Mapping[str, Any]) -> Table:
    rows = tuple(
        (node["name"], node["tier"], str(node["threads"]), "gone" if node["gone"] else node["state"])
        for node in figures["nodes"]
    )
    return Table("nodes", "Nodes at the end", ("node", "tier", "threads", "state"), rows, frozenset({2}))


def _went_back(figures: Mapping[str, Any]) -> Table:
    rows = tuple((str(back["clock"]), back["reason"]) for back in figures.get("went_back") or [])
    return Table("back", "Times that all went back", ("to clock", "why"), rows, frozenset({0}))


def _remarks(figures: Mapping[str, Any]) -> Table:
    rows = tuple((remark,) for remark in figures.get("remarks") or [])
    return Table("remarks", "What the driver said", ("remark",), rows, frozenset())


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
