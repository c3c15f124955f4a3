"""The picture of prices: a panel for each instance type, a line for each zone."""

import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, write_whole

#: Maximum number of panels on one page.
MOST_PANELS = 12
_ENDINGS = (".png", ".svg", ".pdf")
#: Colours of a blind-safe set (Okabe and Ito), one per zone.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_COLUMNS_PX = 1500


def plot_prices(target: Source, title: str, traces: TraceSet, on_demand: Mapping[Market, Trace]) -> None:
    """Draw prices over time as steps: a panel for each instance type, a line for each zone.

    Parameters
    ----------
    target : path or URL, ending in ``.png``, ``.svg`` or ``.pdf``.
    on_demand : the on-demand price of a market over time, if known; a dashed line for each price of a type.

    Raises
    ------
    InputError
        If the name has another ending, or the file cannot be written.

    Notes
    -----
    Of more than `MOST_PANELS` types those with the highest price against their own median are shown, and the title says
    so. Axes are logarithmic in the price: spikes and calm are both to be seen.
    """
    ending = next((ending for ending in _ENDINGS if str(target).endswith(ending)), None)
    if ending is None:
        raise InputError(f"{target}: the name's ending says the kind of picture; end it with {', '.join(_ENDINGS)}")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # heavy, and most verbs draw nothing
    from matplotlib.figure import Figure

    panels = {
        name: list(markets) for name, markets in groupby(traces, key=lambda market: market.instance_type)
    }  # markets come sorted
    shown = sorted(panels, key=lambda name: -_liveliness(traces, panels[name]))[:MOST_PANELS]
    zones = sorted({market.zone for market in traces})
    colours = {zone: _COLOURS[index % len(_COLOURS)] for index, zone in enumerate(zones)}
    across = 1 if len(shown) < 3 else 2
    down = -(-len(shown) // across)
    figure = Figure(figsize=(10, 1.2 + 1.9 * down), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
    for axis, name in zip(axes, sorted(shown), strict=False):
        dashed = [on_demand[market] for market in panels[name] if market in on_demand]
        dashed = [line for index, line in enumerate(dashed) if line not in dashed[:index]]
        _panel(axis, name, {market: traces[market] for market in panels[name]}, colours, dashed, traces)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    for axis in axes[max(0, len(shown) - across) : len(shown)]:
        axis.tick_params(labelbottom=True)  # also above an empty panel
    omitted = f"; {len(shown)} of {len(panels)} types, the least calm" if len(shown) < len(panels) else ""
    figure.suptitle(f"{title}{omitted}", fontsize=10)
    figure.supylabel("dollars an hour", fontsize=9)
    drawn = {zone: line for axis in axes for line in axis.lines if (zone := line.get_label()) in (*zones, "on demand")}
    order = [*zones[: len(_COLOURS)], "on demand"]
    handles = [drawn[label] for label in order if label in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format=ending[1:], metadata=None if ending == ".png" else {"Creator": None})
    write_whole(target, picture.getvalue())


def _liveliness(traces: TraceSet, markets: list[Market]) -> float:
    """Return the largest ratio of the highest price to the median price of the events."""
    return max(float(traces[m].prices_micros.max() / np.median(traces[m].prices_micros)) for m in markets)


def _panel(
    axis: Any,
    name: str,
    markets: Mapping[Market, Trace],
    colours: Mapping[str, str],
    on_demand: Sequence[Trace],
    traces: TraceSet,
) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from_s, until_s = traces.first_s, traces.last_s
    for market, trace in markets.items():
        times, prices = _thinned(trace, from_s, until_s)
        axis.step(times, prices, where="post", lw=0.7, color=colours[market.zone], label=market.zone)
    for line in on_demand:
        times_s = np.append(np.maximum(line.times_s, from_s), until_s)
        prices = np.append(line.prices_micros, line.prices_micros[-1]) / MICROS_PER_DOLLAR
        axis.step(_dates(times_s), prices, where="post", lw=1.0, ls="--", color="black", label="on demand")
    axis.set_yscale("log")
    axis.set_title(name, fontsize=9, loc="left", pad=2)
    low, high = axis.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low < 200 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=subs, numticks=9))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    locator = AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))  # type: ignore[no-untyped-call]
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.25, lw=0.5)
    width_s = max(until_s - from_s, 60)
    axis.set_xlim(*_dates([from_s - width_s // 100, from_s + width_s + width_s // 100]))


def _thinned(trace: Trace, from_s: int, until_s: int) -> tuple[Any, Any]:
    """Return times and dollars to draw; if events exceed the pixel columns, the lowest and highest of each column."""
    times_s, prices = trace.times_s, trace.prices_micros
    if len(times_s) > 4 * _COLUMNS_PX:
        columns = (times_s - from_s) * _COLUMNS_PX // max(1, until_s - from_s)
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        ends = np.append(starts[1:], len(times_s)) - 1
        low, high = np.minimum.reduceat(prices, starts), np.maximum.reduceat(prices, starts)
        # In this order, and with the last value held until the next column, the steps cover all values.
        times_s = np.repeat(times_s[starts], 3)
        prices = np.stack([low, high, prices[ends]], axis=1).ravel()
    times_s, prices = np.append(times_s, until_s), np.append(prices, prices[-1])
    return _dates(times_s), prices / MICROS_PER_DOLLAR


def _dates(times_s: Any) -> Any:
    return np.asarray(times_s).astype("datetime64[s]")
