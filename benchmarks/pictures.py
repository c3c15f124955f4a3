"""Panels of the benchmarks' pictures, and the files that they are written to."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def panels(inches: tuple[float, float], down: int, dpi: int = 100) -> tuple[Figure, Any]:
    """Return a picture with `down` panels, one below another, and the array of them."""
    figure = Figure(figsize=inches, dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, 1, squeeze=False).ravel()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)
        axis.grid(axis="y", alpha=0.25)
    return figure, axes


def write(figure: Figure, target: Path) -> None:
    """Write a picture, and print where."""
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"picture: {target}")
