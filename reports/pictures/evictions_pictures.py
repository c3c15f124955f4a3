"""Pictures of eviction models: survival curves by delta, and predicted against observed shares."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proteus_spot.bidding.evictions.calibration import Calibration
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import HOUR
from proteus_spot.bidding.evictions.summary import shown_deltas
from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, write_whole

#: Maximum number of panels on one page.
MOST_PANELS = 12
PICTURE_ENDINGS = (".png", ".svg", ".pdf")
#: Colours of a blind-safe set (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_TICKS = {1: "1 min", 5: "5", 15: "15", 60: "1 h", 240: "4 h", 1440: "24 h"}
#: Minimum share of a state that counts in the range of states.
_RARE = 0.01


def check_picture_name(target: Source) -> str:
    """Return the kind of picture by the ending of the name; raise `InputError` if the ending is unknown."""
    ending = next((ending for ending in PICTURE_ENDINGS if str(target).endswith(ending)), None)
    if ending is None:
        raise InputError(
            f"{target}: the name's ending says the kind of picture; end it with {', '.join(PICTURE_ENDINGS)}"
        )
    return ending[1:]


def plot_survival(target: Source, title: str, model: CurveModel) -> None:
    """Draw survival curves: a panel per market, a line per delta.

    For a conditioned model the line is the mean over the states, and a band reaches from the state with the shortest
    lifetimes to the one with the longest. Of more than `MOST_PANELS` markets, those are shown whose lowest bids are
    evicted most often within the hour.

    Raises
    ------
    InputError
        If the name has another ending, matplotlib is not there, or the file cannot be written.
    """
    kind = check_picture_name(target)
    means = [model.mean_curves(row) for row in range(len(model.markets))]
    order = sorted(range(len(means)), key=lambda row: means[row][0, HOUR])[:MOST_PANELS]
    across = min(3, len(order))
    figure, axes = _figure(across, -(-len(order) // across))
    deltas = shown_deltas(model)
    for axis, row in zip(axes, sorted(order), strict=False):
        _survival_panel(axis, model, row, means[row], deltas)
    for axis in axes[len(order) :]:
        axis.set_visible(False)
    omitted = f"; {len(order)} of {len(means)} markets, the least calm" if len(order) < len(means) else ""
    figure.suptitle(f"{title}{omitted}", fontsize=10)
    figure.supylabel("share of bids that live", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    _write(target, kind, figure)


def _survival_panel(axis: Any, model: CurveModel, row: int, mean: Any, deltas: Sequence[int]) -> None:
    minutes = model.curves.horizons_s[1:] / 60
    columns = np.searchsorted(model.curves.deltas_micros, deltas, side="right") - 1
    weights = model.weights(row)
    for delta, column, colour in zip(deltas, columns, _COLOURS, strict=False):
        if model.n_states > 1:
            met = model.curves.survival[row, weights[:, column] >= _RARE, column, 1:]
            if len(met):
                axis.fill_between(minutes, met.min(axis=0), met.max(axis=0), color=colour, alpha=0.10, lw=0)
        axis.plot(minutes, mean[column, 1:], color=colour, lw=1.2, label=f"+${to_dollars(delta):g}")
    axis.set_title(str(model.markets[row]), fontsize=8, loc="left", pad=2)
    axis.set_xscale("log")
    axis.set_xticks(list(_TICKS), list(_TICKS.values()))
    axis.minorticks_off()
    axis.set_xlim(1, 1440)
    axis.set_ylim(0, 1.02)
    axis.axvline(60, color="black", lw=0.5, ls=":")


def plot_reliability(target: Source, title: str, checks: Mapping[str, Sequence[Calibration]]) -> None:
    """Draw observed over predicted shares: a panel per horizon, a line per model; a perfect model lies on the diagonal.

    The area of a point shows its number of forecasts.

    Raises
    ------
    InputError
        As `plot_survival`.
    """
    kind = check_picture_name(target)
    horizons = [check.horizon_s for check in next(iter(checks.values()))]
    figure, axes = _figure(len(horizons), 1, height=4.4)
    for index, axis in enumerate(axes):
        axis.plot([0, 1], [0, 1], color="black", lw=0.6, ls="--")
        for (name, found), colour in zip(checks.items(), _COLOURS * len(checks), strict=False):
            predicted, observed, counts = found[index].curve()
            label = f"{name}: Brier {found[index].brier:.4f}"
            axis.plot(predicted, observed, color=colour, lw=1, label=label)
            axis.scatter(predicted, observed, s=4 + 120 * counts / counts.sum(), color=colour, alpha=0.6, lw=0)
        axis.set_title(f"taken within {horizons[index] // 60} min", fontsize=9, loc="left")
        axis.set_xlim(-0.02, 1.02)
        axis.set_ylim(-0.02, 1.02)
        axis.set_aspect("equal")
        axis.legend(fontsize=7, frameon=False, loc="upper left")
    figure.suptitle(title, fontsize=10)
    figure.supxlabel("predicted", fontsize=9)
    figure.supylabel("observed", fontsize=9)
    _write(target, kind, figure)


def _figure(across: int, down: int, height: float | None = None) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # heavy, and most verbs draw nothing
    from matplotlib.figure import Figure

    size = (4.2 if across == 1 else 3.6 * across, height or 1.0 + 2.0 * down)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for axis in axes:
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, lw=0.5)
    return figure, axes


def _write(target: Source, kind: str, figure: Any) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, metadata=None if kind == "png" else {"Creator": None})
    write_whole(target, picture.getvalue())
