"""The picture of a plan: distributions of cost and finishing time under each scheme."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, write_whole

#: Colours of a blind-safe set (Okabe and Ito), one per scheme.
_COLOURS = ("#555555", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A6A4F")
_DASHES = ("-", "--", "-.", ":")
#: Ratio of figures above which the axis is logarithmic, as for costs on demand and spot.
_APART = 4.0
_ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Curve:
    """The jobs of one scheme; shape (jobs,) each. A job that is not `finished` has neither a time nor a cost."""

    name: str
    cost_usd: NDArray[np.float64]
    hours: NDArray[np.float64]
    finished: NDArray[np.bool_]


def check_picture(target: Source) -> None:
    """Check, before the work, that a picture can be drawn.

    Raises
    ------
    InputError
        If the name's ending says no kind of picture.
    """
    _ending(target)


def draw_plan(
    target: Source,
    title: str,
    curves: Sequence[Curve],
    *,
    deadline_h: float | None,
    budget_usd: float | None,
    enough: float,
) -> None:
    """Draw the cumulative distributions of cost and time over the starts; limits are vertical lines.

    A curve crosses the line of a limit at the probability of keeping that limit; the horizontal line is the sufficient
    probability. A curve that never reaches 100 % belongs to a scheme that left jobs unfinished.

    Parameters
    ----------
    target : path or URL, ending in ``.png``, ``.svg`` or ``.pdf``.
    enough : sufficient share of the starts.

    Raises
    ------
    InputError
        As `check_picture`, or if the file cannot be written.
    """
    check_picture(target)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, PercentFormatter

    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, [(each.name, each.cost_usd, each.finished) for each in curves], budget_usd, "budget", enough)
    _panel(right, [(each.name, each.hours, each.finished) for each in curves], deadline_h, "deadline", enough)
    left.set_xlabel("cost of the job", fontsize=9)
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:g}"))
    right.set_xlabel("hours to its end", fontsize=9)
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.set_ylabel("share of the starts", fontsize=9)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    left.set_ylim(0, 1.02)
    figure.suptitle(title, fontsize=10)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=8, frameon=False)
    picture, kind = io.BytesIO(), _ending(target)[1:]
    figure.savefig(picture, format=kind, metadata=None if kind == "png" else {"Creator": None})
    write_whole(target, picture.getvalue())


def _panel(
    axis: Any,
    curves: Sequence[tuple[str, NDArray[np.float64], NDArray[np.bool_]]],
    limit: float | None,
    name: str,
    enough: float,
) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    done = [values[finished] for _, values, finished in curves]
    bounds = [*(float(bound) for each in done if each.size for bound in (each.min(), each.max()))]
    bounds = [bound for bound in (*bounds, limit) if bound is not None] or [1.0]
    most, least = max(bounds) * 1.05, min(bounds) * 0.9
    first = least if 0 < least * _APART < most else 0.0
    for index, ((scheme, values, _), ended) in enumerate(zip(curves, done, strict=True)):
        at = np.sort(ended)
        shares = np.arange(1, len(at) + 1) / len(values)
        axis.step(
            np.concatenate([[first], at, [most]]),
            np.concatenate([[0.0], shares, shares[-1:] if at.size else [0.0]]),
            where="post",
            lw=1.6,
            color=_COLOURS[index % len(_COLOURS)],
            ls=_DASHES[index // len(_COLOURS) % len(_DASHES)],
            label=scheme,
        )
    axis.axhline(enough, color="black", lw=0.6, ls=":")
    if limit is not None:
        axis.axvline(limit, color="#c0182b", lw=1.2, ls="--")
        axis.annotate(name, (limit, 0.02), rotation=90, ha="right", va="bottom", fontsize=8, color="#c0182b")
    if first:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlim(first, most or 1.0)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25, lw=0.5)


def _ending(target: Source) -> str:
    ending = next((ending for ending in _ENDINGS if str(target).endswith(ending)), None)
    if ending is None:
        raise InputError(f"{target}: the name's ending says the kind of picture; end it with {', '.join(_ENDINGS)}")
    return ending
