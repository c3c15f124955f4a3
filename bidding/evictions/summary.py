"""An eviction model in figures, for display."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from proteus_spot.bidding.evictions.base import median_s
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import HORIZONS_S, HOUR, delta_index
from proteus_spot.bidding.evictions.states import LATELY_S
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros, to_dollars
from proteus_spot.bidding.market.time_window import TimeWindow

_QUARTER = HORIZONS_S.index(900)
#: Middle bid delta of `shown_deltas`, for which states are shown.
MIDDLE_MICROS = 10_000
#: Deltas to show, as far as a model distinguishes them.
SHOWN_MICROS = (0, 1_000, MIDDLE_MICROS, 50_000, 100_000, 400_000)


@dataclass(frozen=True)
class BidSummary:
    """A bid delta, with its probabilities of being taken within a quarter of an hour, an hour, a day.

    `median_s` is the median time to an eviction that comes within the hour.
    """

    delta_usd: float
    taken_15_min: float
    taken_1_h: float
    taken_24_h: float
    median_s: float


@dataclass(frozen=True)
class MarketEvictions:
    """A market: the number of bids in its curves (0 if they do not come from prices), and some bids."""

    market: str
    grants: int
    bids: tuple[BidSummary, ...]


@dataclass(frozen=True)
class StateSummary:
    """A bin of a condition: the share of the bids of `MIDDLE_MICROS` in it, and their probability of being taken.

    Over all markets.
    """

    what: str
    bin: str
    share: float
    taken_15_min: float
    taken_1_h: float


@dataclass(frozen=True)
class ModelSummary:
    """A model: its kind and window, its markets, and for a conditioned one the effect of each condition."""

    model: str
    fitted: TimeWindow | None
    n_states: int
    markets: tuple[MarketEvictions, ...]
    states: tuple[StateSummary, ...]
    notes: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able values."""
        return asdict(self)


def shown_deltas(model: CurveModel) -> list[Micros]:
    """Return the deltas to show of a model: some that it distinguishes."""
    lowest = int(model.curves.deltas_micros[0])
    if len(model.curves.deltas_micros) == 1:
        return [lowest]
    return sorted({lowest, *(delta for delta in SHOWN_MICROS if delta > lowest)})


def summary(model: CurveModel, deltas_micros: Sequence[Micros] | None = None) -> ModelSummary:
    """Return the figures of `model`, for some deltas (default: `shown_deltas`)."""
    deltas = shown_deltas(model) if deltas_micros is None else deltas_micros
    return ModelSummary(
        model=model.name,
        fitted=model.fitted,
        n_states=model.n_states,
        markets=tuple(_market(model, row, market, deltas) for row, market in enumerate(model.markets)),
        states=tuple(_states(model)) if model.n_states > 1 else (),
        notes=dict(model.notes),
    )


def _market(model: CurveModel, row: int, market: Market, deltas: Sequence[Micros]) -> MarketEvictions:
    taken = 1 - model.mean_curves(row)[delta_index(model.curves.deltas_micros, np.array(deltas))]
    bids = tuple(
        BidSummary(
            delta_usd=to_dollars(delta),
            taken_15_min=float(curve[_QUARTER]),
            taken_1_h=float(curve[HOUR]),
            taken_24_h=float(curve[-1]),
            median_s=median_s(model, market, delta),
        )
        for delta, curve in zip(deltas, taken, strict=True)
    )
    return MarketEvictions(str(market), int(model.grants[row].sum(axis=0).max(initial=0)), bids)


def _states(model: CurveModel) -> list[StateSummary]:
    """Return each bin of each condition, over the observed values of the others."""
    column = int(delta_index(model.curves.deltas_micros, MIDDLE_MICROS))
    grants = model.grants[:, :, column].reshape(-1, *model.bins.shape).astype(np.float64)
    taken = (1 - model.curves.survival[:, :, column]).reshape(*grants.shape, -1)
    levels = [f"{index + 1} of {model.bins.shape[0]}" for index in range(model.bins.shape[0])]
    names = (
        ("level of the price, from low to high", levels),
        ("time since the price changed", _bins(model.bins.age_s.tolist(), None)),
        ("time above the bid in the last day", _bins(model.bins.above_s.tolist(), LATELY_S)),
    )
    found = []
    for axis, (what, bins) in enumerate(names, start=1):
        if len(bins) == 1:
            continue
        others = tuple(other for other in range(4) if other != axis)
        met = grants.sum(axis=others)
        mean = (taken * grants[..., None]).sum(axis=others) / np.maximum(met, 1)[:, None]
        shares = met / max(met.sum(), 1)
        found += [
            StateSummary(what, name, float(share), float(chance[_QUARTER]), float(chance[HOUR]))
            for name, share, chance in zip(bins, shares, mean, strict=True)
        ]
    return found


def _bins(edges_s: list[int], most_s: int | None) -> list[str]:
    """Return the names of bins of seconds."""
    if not edges_s:
        return ["any"]
    first = "none" if edges_s[0] == 1 else f"below {_length(edges_s[0])}"
    last = "" if most_s is None else f" to {_length(most_s)}"
    between = [f"{_length(low)} to {_length(high)}" for low, high in pairwise(edges_s)]
    return [first, *between, f"{_length(edges_s[-1])}{last or ' and more'}"]


def _length(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"
