"""Pictures of benchmark `sweep`, as Figures 7 to 9 of the SpotTune paper."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.benchmarks import pictures
from proteus_spot.benchmarks.papers.sweeps.sweep_runs import SweepFigures

#: Colours of a palette for colour-blind readers (Okabe and Ito).
_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#999999", "#000000")


def draw_approaches(approaches: Sequence[SweepFigures], applications: Sequence[str], note: str, target: Path) -> None:
    """Draw cost, completion time and performance-cost rate of each approach by application: Figure 7."""
    figure, panels = pictures.panels((11, 9), 3)
    first = approaches[0].rates.mean(axis=1)
    rows = (
        ("dollars a sweep", [one.usd.mean(axis=1) for one in approaches]),
        ("completion time, hours", [one.hours.mean(axis=1) for one in approaches]),
        (f"rate, {approaches[0].name} = 1", [one.rates.mean(axis=1) / first for one in approaches]),
    )
    places = np.arange(len(applications))
    width = 0.8 / len(approaches)
    for axis, (label, heights) in zip(panels, rows, strict=True):
        for index, (one, height) in enumerate(zip(approaches, heights, strict=True)):
            left = places + (index - (len(approaches) - 1) / 2) * width
            axis.bar(left, height, width, color=_COLOURS[index % len(_COLOURS)], label=one.name, edgecolor="white")
        axis.set_xticks(places, applications, fontsize=8)
        axis.set_ylabel(label, fontsize=8)
        axis.set_yscale("log")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", fontsize=7, ncols=4)
    panels[0].set_title(_title(f"Sweeps of 16 trials: {note}"), fontsize=8, loc="left")
    pictures.write(figure, target)


def draw_thetas(by_theta: Mapping[float, SweepFigures], applications: Sequence[str], note: str, target: Path) -> None:
    """Draw cost, completion time, accuracy and free steps against theta: Figures 8 and 9."""
    figure, panels = pictures.panels((9, 11), 4)
    thetas = sorted(by_theta)
    for row, name in enumerate(applications):
        style: dict[str, Any] = {
            "color": _COLOURS[row % len(_COLOURS)],
            "marker": "o",
            "ms": 3,
            "lw": 1.2,
            "label": name,
        }
        panels[0].plot(thetas, [by_theta[theta].usd[row].mean() for theta in thetas], **style)
        panels[1].plot(thetas, [by_theta[theta].hours[row].mean() for theta in thetas], **style)
        panels[3].plot(thetas, [100 * by_theta[theta].free[row].mean() for theta in thetas], **style)
    for label, colour, values in (
        ("predicted best", _COLOURS[0], [100 * by_theta[theta].top1.mean() for theta in thetas]),
        ("among the predicted best three", _COLOURS[3], [100 * by_theta[theta].top3.mean() for theta in thetas]),
    ):
        panels[2].plot(thetas, values, marker="o", ms=4, label=label, color=colour)
    for axis, label in zip(
        panels,
        ("dollars a sweep", "completion time, hours", "best trial found, % of applications", "% of steps free"),
        strict=True,
    ):
        axis.set_ylabel(label, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.set_xticks(thetas)
    panels[0].legend(fontsize=7, frameon=False, ncols=3)
    panels[2].legend(fontsize=7, frameon=False)
    panels[3].set_xlabel("theta", fontsize=8)
    panels[0].set_title(_title(f"SpotTune by theta: {note}"), fontsize=8, loc="left")
    pictures.write(figure, target)


def _title(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 130))
