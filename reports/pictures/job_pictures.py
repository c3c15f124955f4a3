"""The picture of a job: prices and bids, footprint, loss and dollars over market time."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR

#: Maximum size of the picture, bytes; the resolution is reduced until it fits.
MOST_BYTES = 120_000
_DOTS_PER_INCH = (90, 70, 50, 35)
_INCHES = (9.0, 8.2)
#: Colours of a blind-safe set (Okabe and Ito), one per market with purchases; others are pale.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_PALE, _ON_DEMAND, _EVICTED = "#d0d0d0", "#555555", "#c0182b"
_STEPS_S = (60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400)


def job_png(drawn: Mapping[str, Any]) -> bytes:
    """Return the picture of a job as PNG, of at most `MOST_BYTES` if possible.

    Parameters
    ----------
    drawn : data of the report's chart; `reports.pages.job_series` documents its keys.
    """
    figure = job_figure(drawn)
    for dots in _DOTS_PER_INCH:
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=dots)
        if picture.tell() <= MOST_BYTES:
            break
    return picture.getvalue()


def job_figure(drawn: Mapping[str, Any]) -> Any:
    """Return matplotlib's figure of a job, its axes labelled ``prices``, ``footprint``, ``loss`` and ``dollars``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(4, 1, sharex=True, height_ratios=[3, 1.6, 1.6, 2])
    draws = {"prices": _prices, "footprint": _footprint, "loss": _loss, "dollars": _dollars}
    evictions = [at_s for at_s, kind, *_ in drawn["events"] if kind == "evicted"]
    for axis, (label, draw) in zip(panels, draws.items(), strict=True):
        axis.set_label(label)
        draw(axis, drawn)
        for at_s in evictions:
            axis.axvline(at_s, color=_EVICTED, lw=0.8, alpha=0.6, gid="evicted")
        if drawn["trained"] is not None:
            axis.axvline(drawn["trained"], color="black", lw=0.8, ls=":", gid="trained")
        axis.grid(alpha=0.25, lw=0.5)
        axis.tick_params(labelsize=7)
        handles, _ = axis.get_legend_handles_labels()
        if handles:
            place = "upper right" if label == "loss" else "upper left"
            axis.legend(fontsize=7, ncols=3, loc=place, framealpha=0.85)
    _time_axis(panels[-1], drawn["end"])
    panels[0].set_title(f"{drawn['job']} (red: evicted; dotted: trained)", fontsize=10, loc="left")
    return figure


def _prices(axis: Any, drawn: Mapping[str, Any]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    bought = [row[1] for row in drawn["allocations"] if row[4] is not None]
    colour = {market: _COLOURS[i % len(_COLOURS)] for i, market in enumerate(dict.fromkeys(bought))}
    for market, name in enumerate(drawn["markets"]):
        points = drawn["prices"][market]
        if not points:
            continue
        times, prices = _held([at_s for at_s, _ in points], [p for _, p in points], drawn["end"])
        width, label = (1.4, name) if market in colour else (0.7, None)
        axis.step(times, prices, where="post", color=colour.get(market, _PALE), lw=width, label=label, gid=f"p-{name}")
    for name, market, _, _, bid, from_s, to_s, _ in drawn["allocations"]:
        if bid is not None:
            until_s = drawn["end"] if to_s is None else to_s
            axis.plot([from_s, until_s], [bid / MICROS_PER_DOLLAR] * 2, color=colour[market], ls="--", gid=f"b-{name}")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel("an instance-hour; dashed: bids", fontsize=8)


def _footprint(axis: Any, drawn: Mapping[str, Any]) -> None:
    changes = {0.0, float(drawn["end"])}
    for _, _, _, _, _, from_s, to_s, _ in drawn["allocations"]:
        changes |= {float(from_s), float(drawn["end"] if to_s is None else to_s)}
    times = np.array(sorted(changes))
    below = np.zeros(len(times))
    for tier, reliable, colour in (("reliable", 1, _ON_DEMAND), ("transient", 0, _COLOURS[5])):
        height = np.zeros(len(times))
        for _, market, kind, count, _, from_s, to_s, _ in drawn["allocations"]:
            if kind == reliable:
                until_s = drawn["end"] if to_s is None else to_s
                height += (times >= from_s) * (times < until_s) * count * (drawn["vcpu"][market] or 0)
        axis.fill_between(times, below, below + height, step="post", color=colour, lw=0, label=tier, gid=tier)
        below = below + height
    axis.set_ylabel("vCPUs held", fontsize=8)


def _loss(axis: Any, drawn: Mapping[str, Any]) -> None:
    points = [(at_s, loss) for at_s, _, loss in drawn["progress"] if loss is not None]
    if points:
        axis.plot(*zip(*points, strict=True), color=_COLOURS[0], lw=1.4, gid="loss")
        if min(loss for _, loss in points) > 0:
            axis.set_yscale("log")
        clock = drawn["progress"][-1][1]
        axis.plot([], [], color=_COLOURS[0], label=f"clock {clock}, loss {points[-1][1]:.4g}")
    axis.set_ylabel("loss", fontsize=8)


def _dollars(axis: Any, drawn: Mapping[str, Any]) -> None:
    times = [row[0] for row in drawn["ledger"]]
    spent = np.cumsum([row[5] for row in drawn["ledger"]]).tolist()
    at_s, dollars = _held([0, *times], [0, *spent], drawn["end"])
    axis.step(at_s, dollars, where="post", color=_COLOURS[2], lw=1.6, label=f"spent ${dollars[-1]:.4f}", gid="spent")
    if drawn["reference"]:
        line = np.asarray(drawn["reference"], float)
        cost = line[:, 1] / MICROS_PER_DOLLAR
        label = f"the same vCPUs on demand ${cost[-1]:.4f}"
        axis.plot(line[:, 0], cost, color=_ON_DEMAND, ls="--", lw=1.0, label=label, gid="on demand")
    axis.set_ylabel("dollars", fontsize=8)


def _held(times: Sequence[float], micros: Sequence[float | None], end: float) -> tuple[list[float], list[float]]:
    """Return times and dollars of steps, the last one held to the end; unknown values are gaps."""
    dollars = [np.nan if value is None else value / MICROS_PER_DOLLAR for value in micros]
    return [*times, max(end, times[-1])], [*dollars, dollars[-1]]


def _time_axis(axis: Any, end: float) -> None:
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    step_s = next((step for step in _STEPS_S if end / step <= 12), _STEPS_S[-1])
    axis.set_xlim(0, end)
    axis.xaxis.set_major_locator(MultipleLocator(step_s))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{int(at_s) // 3600}:{int(at_s) % 3600 // 60:02}"))
    axis.set_xlabel("market time since the job was recorded, h:mm", fontsize=8)
