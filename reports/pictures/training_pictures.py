"""The picture of a training over time: time per clock, loss, nodes, stage, memory, and the server of each shard."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from proteus_spot.psengine.telemetry.stalls import left_out_of
from proteus_spot.psengine.telemetry.timeline import View, replay
from proteus_spot.reports.pictures.figures import svg

_INCHES = (10.0, 11.0)
#: Colours of a blind-safe set (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A6A4F", "#8a8f98")
_RELIABLE, _TRANSIENT, _CHANGED = "#555555", "#56B4E9", "#c0182b"
#: Maximum number of distinguishable points of a line.
_MOST_POINTS = 1500

T = TypeVar("T")


def training_svg(figures: Mapping[str, Any]) -> bytes:
    """Return the picture as SVG; the same figures give the same bytes."""
    return svg(training_figure(figures))


def training_figure(figures: Mapping[str, Any]) -> Any:
    """Return the Matplotlib figure of a training.

    Its axes are labelled ``clock time``, ``loss``, ``held out``, ``nodes``, ``stage``, ``memory`` and ``shards``.

    Parameters
    ----------
    figures : the result of `proteus train --json`, or of another job: `seconds_by_clock`, `losses`,
        `metrics_by_clock`, `stalls`, `timeline` and `memory_by_clock`; a missing one counts as empty.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    left_out, began_s = left_out_of(figures)
    ends = list(accumulate(figures.get("seconds_by_clock") or [], initial=began_s))[1:]
    steps = list(replay(figures.get("timeline") or []))
    end = max([*ends[-1:], *(second for second, _ in steps[-1:]), 1e-3])
    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(5, 1, sharex=True, height_ratios=[2, 1.6, 1.4, 1.2, 2])
    _clock_time(panels[0], figures, ends)
    _loss(panels[1], figures, ends, left_out)
    _nodes(panels[2], steps, end)
    _memory(panels[3], figures, ends, left_out)
    _shards(panels[4], steps, end)
    for axis in panels:
        for stall in figures.get("stalls") or []:
            axis.axvline(stall["second"], color=_CHANGED, lw=0.8, alpha=0.6, gid="change")
        axis.grid(alpha=0.25, lw=0.5)
        axis.tick_params(labelsize=7)
    panels[-1].set_xlim(0, end)
    panels[-1].set_xlabel("seconds of training", fontsize=8)
    panels[0].set_title(f"{figures.get('job', '')} (red: nodes came or went)", fontsize=10, loc="left")
    return figure


def _clock_time(axis: Any, figures: Mapping[str, Any], ends: Sequence[float]) -> None:
    axis.set_label("clock time")
    times = [seconds * 1e3 for seconds in figures.get("seconds_by_clock") or []]
    kept = _slowest(times)
    axis.plot([ends[k] for k in kept], [times[k] for k in kept], color=_COLOURS[0], lw=1.0, gid="clock time")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("ms a clock", fontsize=8)


def _loss(axis: Any, figures: Mapping[str, Any], ends: Sequence[float], left_out: int) -> None:
    axis.set_label("loss")
    points = [
        (ends[clock - 1 - left_out], loss)
        for clock, loss in figures.get("losses") or []
        if loss is not None and left_out < clock <= left_out + len(ends)
    ]
    if points:
        axis.plot(*zip(*_thinned(points), strict=True), color=_COLOURS[0], lw=1.2, gid="loss")
        if min(loss for _, loss in points) > 0:
            axis.set_yscale("log")
    axis.set_ylabel("loss", fontsize=8)
    series = figures.get("metrics_by_clock") or []
    name = next(iter(series[-1][1]), None) if series else None
    if name is None:
        return
    other = axis.twinx()
    other.set_label("held out")
    points = [
        (ends[clock - 1 - left_out], metrics.get(name))
        for clock, metrics in series
        if left_out < clock <= left_out + len(ends)
    ]
    present = [(at, value) for at, value in points if value is not None]
    if present:
        other.plot(*zip(*present, strict=True), color=_COLOURS[1], ls=":", marker="o", ms=3, lw=1.0, gid="held out")
    other.set_ylabel(f"held-out {name}", fontsize=8, color=_COLOURS[1])
    other.tick_params(labelsize=7)


def _nodes(axis: Any, steps: Sequence[tuple[float, View]], end: float) -> None:
    axis.set_label("nodes")
    if not steps:
        return
    times = [second for second, _ in steps] + [end]
    below: Any = np.zeros(len(times))
    for tier, colour in (("reliable", _RELIABLE), ("transient", _TRANSIENT)):
        counts = [sum(of == (tier, "ready") for of in view.nodes.values()) for _, view in steps]
        height = np.array([*counts, counts[-1]], float)
        axis.fill_between(
            times, below, below + height, step="post", color=colour, lw=0, label=f"{tier}, ready", gid=tier
        )
        below = below + height
    axis.set_ylabel("nodes ready", fontsize=8)
    axis.legend(fontsize=7, ncols=2, loc="upper left", framealpha=0.85)
    stage = axis.twinx()
    stage.set_label("stage")
    stages = [view.stage for _, view in steps]
    stage.step(times, [*stages, stages[-1]], where="post", color=_COLOURS[1], lw=1.2, gid="stage")
    stage.set_ylim(0.5, 3.5)
    stage.set_yticks([1, 2, 3])
    stage.tick_params(labelsize=7)
    stage.set_ylabel("stage", fontsize=8, color=_COLOURS[1])


def _memory(axis: Any, figures: Mapping[str, Any], ends: Sequence[float], left_out: int) -> None:
    """Draw the memory of all nodes by kind, one above the other."""
    axis.set_label("memory")
    axis.set_ylabel("memory, MB", fontsize=8)
    entries = figures.get("memory_by_clock") or []
    inside = [entry for entry in entries if left_out < entry[0] <= left_out + len(ends)]
    if not inside:
        return
    clocks, *by_kind = np.array([entry[:4] for entry in _thinned(inside)]).T
    times = np.asarray(ends)[clocks - 1 - left_out]
    below: Any = np.zeros(len(times))
    for name, n_bytes, colour in zip(("tables", "states", "input"), by_kind, _COLOURS, strict=False):
        above = below + n_bytes / 1e6
        axis.fill_between(times, below, above, color=colour, alpha=0.7, lw=0, label=name, gid=f"memory of {name}")
        below = above
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7, ncols=3, loc="lower left", framealpha=0.85)


def _shards(axis: Any, steps: Sequence[tuple[float, View]], end: float) -> None:
    """Draw a row per shard: the server as a wide bar, the owner of its replica as a narrow one below."""
    axis.set_label("shards")
    bars: dict[str, list[tuple[float, float, float, float]]] = {}
    n_shards = max((len(view.shards) for _, view in steps), default=0)
    for shard in range(n_shards):
        for role, top, tall in ((0, shard - 0.4, 0.55), (1, shard + 0.18, 0.2)):
            for begin, until, name in _runs([(at, _role(view, shard, role)) for at, view in steps], end):
                bars.setdefault(name, []).append((begin, until - begin, top, tall))
    for place, name in enumerate(sorted(bars, key=lambda name: (len(name), name))):
        colour = _COLOURS[place % len(_COLOURS)]
        x, width, y, height = (np.array(column) for column in zip(*bars[name], strict=True))
        axis.barh(y, width, height, left=x, align="edge", color=colour, lw=0, label=name, gid=f"shards of {name}")
    axis.set_ylim(max(n_shards, 1) - 0.45, -0.55)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel("shard: server, backup below", fontsize=8)
    if bars:
        axis.legend(fontsize=7, ncols=12, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, frameon=False)


def _role(view: View, shard: int, role: int) -> str | None:
    return view.shards[shard][role] if shard < len(view.shards) else None


def _runs(steps: Sequence[tuple[float, str | None]], end: float) -> list[tuple[float, float, str]]:
    """Return (begin, end, name) of the intervals with the same name."""
    found: list[tuple[float, float, str]] = []
    begin, name = 0.0, None
    for at, current in [*steps, (end, None)]:
        if current != name:
            if name is not None and at > begin:
                found.append((begin, at, name))
            begin, name = at, current
    return found


def _slowest(times: Sequence[float]) -> list[int]:
    """Return the indices to draw: all, or of many clocks the slowest of each interval, to keep the peaks."""
    if len(times) <= _MOST_POINTS:
        return list(range(len(times)))
    stretches = np.array_split(np.arange(len(times)), _MOST_POINTS)
    return [int(stretch[np.argmax(np.asarray(times)[stretch])]) for stretch in stretches]


def _thinned(points: Sequence[T]) -> list[T]:
    if len(points) <= _MOST_POINTS:
        return list(points)
    return [points[int(k)] for k in np.linspace(0, len(points) - 1, _MOST_POINTS)]
