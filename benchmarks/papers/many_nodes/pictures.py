"""Pictures of the benchmarks of many nodes, in the style of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from proteus_spot.benchmarks import pictures
from proteus_spot.benchmarks.papers.many_nodes.measurement import Measured

#: Colours of a palette for colour-blind readers (Okabe and Ito).
_COLOURS = {
    "traditional": "#56B4E9",
    "stage 1": "#CC79A7",
    "stage 2": "#0072B2",
    "stage 3": "#D55E00",
    "chosen": "#009E73",
}
_PALE = "#999999"
_DPI = 110
_SAID: Any = {"ha": "center", "fontsize": 7}


def draw_tiering(found: Sequence[tuple[Measured, Measured]], target: Path) -> None:
    """Draw the median clock of each layout as a bar, with its range; a panel for each number of nodes."""
    numbers = sorted({one.layout.nodes for one, _ in found})
    figure, panels = pictures.panels((10, 0.8 + 3.0 * len(numbers)), len(numbers), dpi=_DPI)
    for axis, n in zip(panels, numbers, strict=True):
        shown = [one for one, _ in found if one.layout.nodes == n]
        for position, one in enumerate(shown):
            middle = median(one.seconds)
            reach = [[middle - min(one.seconds)], [max(one.seconds) - middle]]
            hatch = None if one.valid else "//"
            colour = _colour(one)
            axis.bar(position, middle, 0.7, yerr=reach, color=colour, hatch=hatch, edgecolor="white", capsize=2)
            axis.annotate(
                f"{middle / median(shown[0].seconds):.2f}", (position, 0), (0, 3), textcoords="offset points", **_SAID
            )
        names = [f"{one.layout.name}\n{one.layout.tiers}" for one in shown]
        axis.set_xticks(range(len(shown)), names, fontsize=7)
        axis.axhline(median(shown[0].seconds), color=_PALE, lw=0.8, ls=":")
        axis.set_ylabel("seconds a clock", fontsize=8)
        invalid = "" if all(one.valid for one in shown) else "; hatched: invalid, the processors were too busy"
        axis.set_title(
            f"{n} nodes, reliable + transient; numbers: against traditional{invalid}", fontsize=9, loc="left"
        )
    pictures.write(figure, target)


def _colour(one: Measured) -> str:
    return _COLOURS[one.layout.name.partition(",")[0]]


def draw_elasticity(seconds: Sequence[float], events: dict[int, str], title: str, target: Path) -> None:
    """Draw the seconds of each clock, with the events of some clocks."""
    figure, (axis,) = pictures.panels((9, 3.6), 1, dpi=_DPI)
    axis.bar(range(1, len(seconds) + 1), seconds, 0.8, color=_COLOURS["stage 2"])
    for clock, what in events.items():
        axis.annotate(what, (clock, max(seconds)), (0, 4), textcoords="offset points", **_SAID)
        axis.axvline(clock, color=_PALE, lw=0.8, ls=":", zorder=0)
    axis.set_xlabel("clock", fontsize=8)
    axis.set_ylabel("seconds", fontsize=8)
    axis.set_title(f"{title}\n", fontsize=9, loc="left")
    pictures.write(figure, target)


def draw_scaling(found: Sequence[Measured], target: Path) -> None:
    """Draw the median clock against the number of nodes, beside the ideal line: the first divided by the ratio."""
    figure, (axis,) = pictures.panels((6, 4), 1, dpi=_DPI)
    nodes = [one.layout.nodes for one in found]
    middle = [median(one.seconds) for one in found]
    axis.plot(nodes, [middle[0] * nodes[0] / n for n in nodes], "--", color=_PALE, label="ideal")
    best = [min(clock_s for clock_s, n in zip(middle, nodes, strict=True) if n == some) for some in nodes]
    axis.plot(nodes, best, "-", color=_PALE, lw=0.8)
    for one, n, clock_s in zip(found, nodes, middle, strict=True):
        name = f"{one.layout.name}, {one.layout.tiers}"
        axis.plot(n, clock_s, "o", color=_colour(one), label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xticks(nodes, [str(n) for n in nodes])
    axis.set_xlabel("nodes", fontsize=8)
    axis.set_ylabel("seconds a clock", fontsize=8)
    axis.legend(fontsize=7, frameon=False)
    pictures.write(figure, target)
