"""Pictures of a sweep: its machines and prices over time, curves, parallel coordinates, dollars by trial."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.tuning.space import Parameter, ParameterKind
from proteus_spot.reports.pictures.figures import png, svg
from proteus_spot.reports.sweep_view import MOST_DRAWN, SweepView, TrialLine, trial_name, value_text

#: Colours of a blind-safe set (Okabe and Ito); what is less important is pale.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A6A4F", "#8a8f98")
_PALE, _EVICTED, _REFUNDED = "#b9bcc2", "#c0182b", "#009E73"
_WIDE = 10.0
#: Maximum number of curves that are coloured, and of points of a curve.
_MOST_COLOURED = 8
_MOST_POINTS = 600
#: Ratio of the largest to the smallest value from which on an axis is logarithmic.
_LOG_RATIO = 20.0
_STEPS_S = (60, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 86_400, 604_800)


def timeline_svg(view: SweepView) -> bytes:
    """Return the machines of each trial over market time, below the prices on the same axis."""
    return svg(timeline_figure(view))


def curves_svg(view: SweepView) -> bytes:
    """Return the metric of each trial by step, with its prediction."""
    return svg(curves_figure(view))


def curves_png(view: SweepView) -> bytes:
    """Return what `curves_svg` draws as PNG, small enough for a page in the Prefect UI."""
    return png(curves_figure(view), 70)


def parallel_svg(view: SweepView) -> bytes:
    """Return the settings as lines across their parameters, coloured by the metric."""
    return svg(parallel_figure(view))


def dollars_svg(view: SweepView) -> bytes:
    """Return the dollars of each trial: what was paid, and what was refunded."""
    return svg(dollars_figure(view))


def timeline_figure(view: SweepView) -> Any:
    """Return matplotlib's figure, its axes labelled ``prices`` and ``trials``."""
    shown = sorted(trial.number for trial in _shown(view))
    row = {number: index for index, number in enumerate(shown)}
    figure = _figure(3.2 + 0.16 * len(shown))
    prices, rows = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, max(0.16 * len(shown), 0.8)])
    prices.set_label("prices")
    rows.set_label("trials")
    used = list(dict.fromkeys(machine.market for machine in view.machines))
    colour = {market: _COLOURS[index % len(_COLOURS)] for index, market in enumerate(used)}
    end = max(view.last_s - view.begun_s, 1.0)
    for market, (times, micros) in view.prices.items():
        at_s = np.append(times - view.begun_s, end)
        dollars = np.append(micros, micros[-1:]) / MICROS_PER_DOLLAR
        width, label = (1.3, market) if market in colour else (0.6, None)
        prices.step(
            at_s, dollars, where="post", color=colour.get(market, _PALE), lw=width, label=label, gid=f"p-{market}"
        )
    for machine in view.machines:
        if machine.trial not in row:
            continue
        from_s = machine.from_s - view.begun_s
        until_s = end if machine.until_s is None else machine.until_s - view.begun_s
        edge = {"edgecolor": "black", "linewidth": 0.8} if machine.bid_micros is None else {}
        bar = rows.barh(
            row[machine.trial],
            max(until_s - from_s, 1.0),
            left=from_s,
            height=0.7,
            color=colour[machine.market],
            **edge,
        )
        bar[0].set_gid(f"m-{machine.order_id}")
        if machine.cause == "evicted":
            rows.plot(until_s, row[machine.trial], "|", color=_EVICTED, ms=9, mew=2, gid=f"e-{machine.order_id}")
    rows.set_yticks(range(len(shown)), [trial_name(number) for number in shown], fontsize=6)
    rows.invert_yaxis()
    prices.set_ylabel("$ an instance-hour", fontsize=8)
    if _is_wide([float(value) for _, micros in view.prices.values() for value in micros]):
        prices.set_yscale("log")
        prices.yaxis.set_major_formatter("{x:g}")
    if used and view.prices:
        prices.legend(fontsize=7, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)  # above all lines
    _time_axis(rows, end)
    _finish(figure)
    return figure


def curves_figure(view: SweepView) -> Any:
    """Return matplotlib's figure with one axis; the best trials are coloured and named."""
    figure = _figure(4.6)
    axis = figure.subplots()
    ranked = [trial for trial in _shown(view) if len(trial.curve_steps)]
    for rank in reversed(range(len(ranked))):
        trial = ranked[rank]
        named = rank < _MOST_COLOURED
        colour = _COLOURS[rank] if named else _PALE
        kept = _thinned(trial.curve_values)
        label = f"{trial.name}: {value_text(trial.value)}" if named else None
        axis.plot(
            trial.curve_steps[kept],
            trial.curve_values[kept],
            color=colour,
            lw=1.4 if named else 0.7,
            label=label,
            gid=f"c-{trial.number}",
        )
        if trial.predicted is not None and trial.steps < view.max_trial_steps:
            ends = [trial.curve_values[-1], trial.predicted]
            axis.plot([trial.curve_steps[-1], view.max_trial_steps], ends, color=colour, lw=0.7, ls=":")
            axis.errorbar(
                view.max_trial_steps, trial.predicted, yerr=trial.predicted_std, fmt="o", ms=4, color=colour, lw=0.9,
                capsize=2, gid=f"f-{trial.number}",
            )  # fmt: skip
    if _is_wide([float(v) for trial in ranked for v in trial.curve_values]):
        axis.set_yscale("log")
    axis.set_xlim(0, view.max_trial_steps * 1.02)
    axis.set_xlabel("step", fontsize=8)
    axis.set_ylabel(view.metric, fontsize=8)
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        axis.legend(handles[::-1], labels[::-1], fontsize=7, ncols=2, framealpha=0.85)
    _finish(figure)
    return figure


def parallel_figure(view: SweepView) -> Any:
    """Return matplotlib's figure with one axis; trials without a value are left out."""
    from matplotlib import colormaps

    figure = _figure(4.2)
    axis = figure.subplots()
    trials = [trial for trial in _shown(view) if trial.value is not None]
    names = [*view.space, view.metric]
    if trials:
        columns = [_scaled_parameter(p, [t.params.get(name) for t in trials]) for name, p in view.space.items()]
        columns.append(_scaled([float(trial.value or 0.0) for trial in trials], is_log=False))
        heights = np.column_stack([heights for heights, _ in columns])
        good = 1 - columns[-1][0] if view.direction == "minimize" else columns[-1][0]
        for index in np.argsort(good):
            line = axis.plot(
                range(len(names)), heights[index], color=colormaps["viridis"](float(good[index])),
                lw=0.8 + 1.4 * float(good[index]), alpha=0.85, gid=f"l-{trials[index].number}",
            )  # fmt: skip
            line[0].set_zorder(2 + float(good[index]))
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
        for position, (_, ticks) in enumerate(columns):
            axis.axvline(position, color="#555555", lw=0.8)
            for height, text in ticks:
                axis.text(position + 0.02, height, text, fontsize=7, va="center", zorder=4, bbox=behind)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yticks([])
    axis.set_ylim(-0.06, 1.06)
    axis.set_xlim(-0.1, len(names) - 0.7)
    _finish(figure, grid=False)
    return figure


def dollars_figure(view: SweepView) -> Any:
    """Return matplotlib's figure with one axis: a bar for each trial, its refunds beside what was paid."""
    trials = sorted(_shown(view), key=lambda trial: trial.number)
    figure = _figure(1.2 + 0.17 * max(len(trials), 3))
    axis = figure.subplots()
    places = np.arange(len(trials))
    paid = np.array([trial.spent_micros for trial in trials], float) / MICROS_PER_DOLLAR
    refunded = np.array([trial.refunded_micros for trial in trials], float) / MICROS_PER_DOLLAR
    axis.barh(places, paid, color=_COLOURS[0], height=0.7, label="paid")
    axis.barh(
        places, refunded, left=paid, color="none", edgecolor=_REFUNDED, hatch="////", height=0.7, label="refunded"
    )
    axis.set_yticks(places, [trial.name for trial in trials], fontsize=6)
    axis.invert_yaxis()
    axis.set_xlim(0, max(float((paid + refunded).max(initial=0.0)) * 1.03, 1e-6))
    axis.set_xlabel("dollars", fontsize=8)
    if trials:
        axis.legend(fontsize=7, loc="lower right", framealpha=0.85)
    _finish(figure)
    return figure


def _shown(view: SweepView) -> list[TrialLine]:
    return view.ranked()[:MOST_DRAWN]


def _figure(high: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDE, high), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _finish(figure: Any, grid: bool = True) -> None:
    for axis in figure.axes:
        axis.tick_params(labelsize=7)
        if grid:
            axis.grid(alpha=0.25, lw=0.5)


def _thinned(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of at most `_MOST_POINTS` points at even distances, the last one included."""
    return np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_POINTS)).astype(np.int64))


def _is_wide(values: Sequence[float]) -> bool:
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    return len(finite) > 0 and bool(finite.min() > 0) and bool(finite.max() / finite.min() > _LOG_RATIO)


def _scaled(values: Sequence[float], is_log: bool) -> tuple[NDArray[np.float64], list[tuple[float, str]]]:
    """Return values as heights from 0 to 1, and the texts of the ends."""
    raw = np.asarray(values, float)
    heights = np.log(raw) if is_log else raw
    low, high = float(heights.min()), float(heights.max())
    if high <= low:
        return np.full(len(raw), 0.5), [(0.5, value_text(float(raw[0])))]
    ends = [(0.0, value_text(float(raw.min()))), (1.0, value_text(float(raw.max())))]
    return (heights - low) / (high - low), ends


def _scaled_parameter(
    parameter: Parameter, values: Sequence[Any]
) -> tuple[NDArray[np.float64], list[tuple[float, str]]]:
    if parameter.kind is not ParameterKind.CHOICE:
        return _scaled([float(value) for value in values], parameter.kind is ParameterKind.LOG)
    last = max(len(parameter.choices) - 1, 1)
    texts = [(index / last, str(choice)[:12]) for index, choice in enumerate(parameter.choices)]
    indices = [next(i for i, c in enumerate(parameter.choices) if type(c) is type(v) and c == v) for v in values]
    return np.asarray(indices, float) / last, texts


def _time_axis(axis: Any, end: float) -> None:
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    step_s = next((step for step in _STEPS_S if end / step <= 12), _STEPS_S[-1])
    axis.set_xlim(0, end)
    axis.xaxis.set_major_locator(MultipleLocator(step_s))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{int(at_s) // 3600}:{int(at_s) % 3600 // 60:02}"))
    axis.set_xlabel("market time since the sweep was recorded, h:mm", fontsize=8)
