"""The picture of benchmark `bgd`, as Figure 1 of the paper: objective and AUPRC by round and by second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from proteus_spot.benchmarks.papers.bgd.runs import BACK, LOST, Case, DescentCurve
from proteus_spot.benchmarks.pictures import write


def draw_curves(curves: Mapping[str, Mapping[Case, DescentCurve]], note: str, target: Path) -> None:
    """Draw the curves of one seed: a row for each setting."""
    canvas = Figure(figsize=(15, 3.4 * len(curves)), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots(len(curves), 4, squeeze=False)
    for row, (rule, by_case) in zip(axes, curves.items(), strict=True):
        for case, curve in by_case.items():
            rounds = range(len(curve.objective))
            for column, abscissa in enumerate((rounds, curve.seconds)):
                row[column].plot(abscissa, curve.objective, label=case, linewidth=1)
                row[column].set_yscale("log")
                points = [curve.seconds[r] if column else r for r in curve.auprc]
                row[2 + column].plot(points, list(curve.auprc.values()), label=case, linewidth=1)
        for column, axis in enumerate(row):
            axis.set_title(
                f"{rule}: {'objective over all data' if column < 2 else 'AUPRC on the test set'}", fontsize=8
            )
            axis.set_xlabel("seconds, a processor for each partition" if column % 2 else "round", fontsize=7)
            axis.tick_params(labelsize=7)
            axis.spines[["top", "right"]].set_visible(False)
            if column % 2 == 0:
                axis.axvspan(LOST, BACK, color="0.93")
    axes[0, 0].legend(fontsize=7)
    canvas.supxlabel(note, fontsize=8)
    write(canvas, target)
