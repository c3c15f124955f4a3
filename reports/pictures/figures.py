"""Shared helpers: figures without a screen, and their bytes as SVG or PNG."""

import io
from typing import Any

_WIDE = 10.0


def svg(figure: Any) -> bytes:
    """Return a figure as SVG; the same figure gives the same bytes."""
    import matplotlib

    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "proteus"}):
        figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    return picture.getvalue()


def png(figure: Any, dots: int = 80) -> bytes:
    """Return a figure as PNG."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=dots)
    return picture.getvalue()


def new_figure(down: int, high: float) -> tuple[Any, Any]:
    """Return a figure `high` inches high, and its `down` axes from top to bottom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDE, high), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, 1, squeeze=False).ravel()
    for axis in axes:
        axis.tick_params(labelsize=8)
        axis.yaxis.label.set_size(8.5)
    return figure, axes
