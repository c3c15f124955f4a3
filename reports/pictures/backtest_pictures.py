"""The Proteus paper's figures on cost, redrawn from a backtest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.bidding.evictions.fit_capacity import NO_CAPACITY_MICROS
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.reports.pictures.figures import new_figure

#: Colours of a blind-safe set (Okabe and Ito), one per scheme; hatched for further schemes.
_COLOURS = ("#56B4E9", "#0072B2", "#009E73", "#D55E00", "#E69F00", "#CC79A7", "#7A6A4F", "#555555")
_ON_DEMAND, _PAID, _FREE = "#8a8f98", "#0072B2", "#009E73"
_RELIABLE = "#c0182b"


@dataclass(frozen=True)
class Bars:
    """Figures of each group (a zone) under each name (a scheme).

    Attributes
    ----------
    cost, cost_error, runtime : shape (names, groups), shares of on-demand.
    hours : shape (names, groups, 3), machine-hours per job: on demand, paid, free.
    """

    groups: tuple[str, ...]
    names: tuple[str, ...]
    cost: Any
    cost_error: Any
    runtime: Any
    hours: Any


@dataclass(frozen=True)
class PriceLine:
    """The price of one market; `scale` converts prices to a common number of vCPUs, that of `on_demand_usd`."""

    name: str
    trace: Trace
    scale: float
    on_demand_name: str
    on_demand_usd: float


@dataclass(frozen=True)
class PriceBlock:
    """One allocation in a phase: its share of the expected cost of work, dollars per vCPU-hour."""

    name: str
    cost_per_work: float
    reliable: bool = False


@dataclass(frozen=True)
class Phase:
    """The footprint between two changes; `when` and `what` label its begin."""

    when: str
    what: str
    blocks: tuple[PriceBlock, ...]


def cost_and_time(bars: Bars, group: int) -> Any:
    """Return Figure 1: cost (left axis) and run time (right axis) of each scheme, one group."""
    figure, (axis,) = new_figure(1, 3.6)
    at = np.arange(len(bars.names))
    cost, runtime = bars.cost[:, group] * 100, bars.runtime[:, group] * 100
    drawn = axis.bar(at - 0.2, cost, 0.38, color=_COLOURS[1], label="cost", yerr=bars.cost_error[:, group] * 100)
    axis.bar_label(drawn, fmt="%.1f", fontsize=8, padding=2)
    right = axis.twinx()
    right.tick_params(labelsize=8)
    right.yaxis.label.set_size(8.5)
    late = right.bar(at + 0.2, runtime, 0.38, color=_COLOURS[3], label="run time")
    right.bar_label(late, fmt="%.0f", fontsize=8, padding=2)
    axis.set_ylim(0, max(110, cost.max() * 1.15))
    right.set_ylim(0, max(110, np.nanmax(runtime) * 1.15))
    axis.set_ylabel("cost, % of on demand")
    right.set_ylabel("run time, % of on demand")
    axis.set_xticks(at, [name.replace("+", "+\n") for name in bars.names])
    figure.legend(loc="outside upper right", ncols=2, fontsize=8, frameon=False)
    return figure


def by_zone(bars: Bars) -> Any:
    """Return Figures 8 and 9: cost of each scheme in each zone above, run time below."""
    figure, axes = new_figure(2, 5.4)
    for axis, values, error, what in (
        (axes[0], bars.cost, bars.cost_error, "cost, % of on demand"),
        (axes[1], bars.runtime, None, "run time, % of on demand"),
    ):
        for index, at, width in _places(bars):
            bar = axis.bar(
                at,
                values[index] * 100,
                width * 0.92,
                yerr=None if error is None else error[index] * 100,
                error_kw={"lw": 0.8},
                label=bars.names[index],
                **_look(index),
            )
            if values.size <= 60:
                axis.bar_label(bar, fmt="%.0f", fontsize=6.5, padding=1)
        axis.set_ylabel(what)
        axis.set_xticks(np.arange(len(bars.groups)), bars.groups)
        axis.grid(axis="y", alpha=0.25, lw=0.5)
        axis.set_axisbelow(True)
        axis.margins(y=0.12)
    axes[1].axhline(100, color="black", lw=0.8, ls="--")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5), fontsize=8, frameon=False)
    return figure


def who_paid(bars: Bars) -> Any:
    """Return Figure 10: machine-hours per job on demand, paid on the spot market, and free (refunded)."""
    figure, (axis,) = new_figure(1, 3.8)
    ticks: list[float] = []
    names: list[str] = []
    for index, at, width in _places(bars):
        below = np.zeros(len(bars.groups))
        for column, (label, colour) in enumerate((("on demand", _ON_DEMAND), ("paid", _PAID), ("free", _FREE))):
            height = bars.hours[index, :, column]
            axis.bar(at, height, width * 0.88, bottom=below, color=colour, label=label if index == 0 else None)
            below = below + height
        ticks += at.tolist()
        names += [bars.names[index]] * len(at)
    axis.set_xticks(ticks, names, rotation=60 if len(ticks) > 8 else 0, ha="right" if len(ticks) > 8 else "center")
    axis.tick_params(axis="x", labelsize=7)
    groups = axis.secondary_xaxis("top")
    groups.set_xticks(np.arange(len(bars.groups)), bars.groups)
    groups.tick_params(length=0, labelsize=8)
    groups.spines["top"].set_visible(False)
    axis.set_ylabel("machine-hours a job")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def price_lines(lines: Sequence[PriceLine], from_s: int, until_s: int, job: tuple[int, int], vcpus: int) -> Any:
    """Return Figure 3: prices of several markets over some days, beside the on-demand price; a job's time is shaded."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, (axis,) = new_figure(1, 3.6)
    on_demand: Mapping[str, float] = {line.on_demand_name: line.on_demand_usd for line in lines}
    for index, line in enumerate(lines):
        shown = line.trace.between(from_s, until_s)
        times = np.append(np.maximum(shown.times_s, from_s), until_s).astype("datetime64[s]")
        micros = np.append(shown.prices_micros, shown.prices_micros[-1:])
        prices = np.where(micros < NO_CAPACITY_MICROS, micros / MICROS_PER_DOLLAR * line.scale, np.nan)
        axis.step(
            times[: len(prices)], prices, where="post", lw=1.0, color=_COLOURS[(1, 3, 2)[index % 3]], label=line.name
        )
    for name, dollars in on_demand.items():
        axis.axhline(dollars, color="black", lw=1.0, ls="--", label=f"{name} on demand")
    axis.axvspan(*np.array(job).astype("datetime64[s]"), color="#000000", alpha=0.06, lw=0)
    locator = AutoDateLocator(maxticks=9)  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axis.set_xlim(*np.array([from_s, until_s]).astype("datetime64[s]"))
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,), numticks=9))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel(f"an hour of {vcpus} vCPUs")
    axis.grid(alpha=0.25, lw=0.5)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def transitions(phases: Sequence[Phase]) -> Any:
    """Return Figure 6: the expected cost of work from phase to phase, a block for each allocation."""
    figure, (axis,) = new_figure(1, 4.4)
    names = list(dict.fromkeys(block.name for phase in phases for block in phase.blocks if not block.reliable))
    for place, phase in enumerate(phases):
        below = 0.0
        for block in phase.blocks:
            look = {"color": _RELIABLE} if block.reliable else _look(names.index(block.name))
            axis.bar(place, block.cost_per_work, 0.8, bottom=below, edgecolor="white", linewidth=0.6, **look)
            below += block.cost_per_work
        if below:
            axis.annotate(f"{below:.4f}", (place, below), ha="center", va="bottom", fontsize=7)
        else:
            axis.annotate("nothing works", (place, 0), ha="center", va="bottom", fontsize=7, rotation=90)
    axis.set_xticks(range(len(phases)), [f"{phase.when}\n{phase.what}" for phase in phases], fontsize=6.5)
    axis.set_ylabel("expected $ a vCPU-hour of work")
    axis.margins(y=0.1)
    return figure


def _places(bars: Bars) -> list[tuple[int, Any, float]]:
    """Return (index of the name, positions of its bar in each group, width)."""
    width = 0.84 / max(len(bars.names), 1)
    middle = (len(bars.names) - 1) / 2
    return [(index, np.arange(len(bars.groups)) + (index - middle) * width, width) for index in range(len(bars.names))]


def _look(index: int) -> dict[str, Any]:
    hatch = ("", "///", "...")[index // len(_COLOURS) % 3]
    return {"color": _COLOURS[index % len(_COLOURS)], "hatch": hatch}
