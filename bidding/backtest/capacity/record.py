"""`CapacityRecord`: how many machines of each zone could be had at each step, and at what price."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.traces import Int64s

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CapacityRecord:
    """A record of availability.

    Attributes
    ----------
    step_s : seconds from one step to the next.
    zones : their names.
    counts : machines that could be had, shape (steps, zones).
    spot, on_demand : dollars an hour of one machine, shape (zones,) each.
    """

    step_s: int
    zones: tuple[str, ...]
    counts: Int64s
    spot: Floats
    on_demand: Floats

    def __post_init__(self) -> None:
        if self.counts.shape[1:] != (len(self.zones),) or not len(self.spot) == len(self.on_demand) == len(self.zones):
            raise ValueError(
                f"{len(self.zones)} zones, counts of shape {self.counts.shape}, {len(self.spot)} spot and "
                f"{len(self.on_demand)} on-demand prices"
            )

    @property
    def regions(self) -> dict[str, tuple[int, ...]]:
        """The columns of each region, by name."""
        names = [zone.rsplit("-", 1)[0] for zone in self.zones]
        return {name: tuple(at for at, one in enumerate(names) if one == name) for name in sorted(set(names))}

    def of(self, columns: Sequence[int]) -> "CapacityRecord":
        """Return the record of some zones."""
        at = list(columns)
        zones = tuple(self.zones[column] for column in at)
        return replace(self, zones=zones, counts=self.counts[:, at], spot=self.spot[at], on_demand=self.on_demand[at])


def from_rows(
    times_s: Sequence[int], zones: Sequence[str], counts: Sequence[int], prices: dict[str, tuple[float, float]]
) -> CapacityRecord:
    """Return the record of rows (time, zone, count), in any order; a step that is missing is as the one before.

    Parameters
    ----------
    prices : {region: (spot, on demand)}, dollars an hour of one machine.

    Raises
    ------
    ValueError
        If there is no row, steps are uneven, a zone is without a price or a count is below 0.
    """
    if not times_s:
        raise ValueError("there is no row")
    moments, names = sorted(set(times_s)), sorted(set(zones))
    if min(counts) < 0:
        raise ValueError(f"a count is {min(counts)}")
    if unpriced := [name for name in names if name.rsplit("-", 1)[0] not in prices]:
        raise ValueError(f"there is no price of {unpriced[0].rsplit('-', 1)[0]}, the region of {unpriced[0]}")
    step_s = int(np.diff(moments).min()) if len(moments) > 1 else 600
    steps = (moments[-1] - moments[0]) // step_s + 1
    table = np.full((steps, len(names)), -1, dtype=np.int64)
    column = {name: at for at, name in enumerate(names)}
    for moment, zone, count in zip(times_s, zones, counts, strict=True):
        step, rest = divmod(moment - moments[0], step_s)
        if rest:
            raise ValueError(f"a row is {rest} s off the steps of {step_s} s")
        table[step, column[zone]] = count
    table[0] = np.maximum(table[0], 0)
    known = np.maximum.accumulate(np.where(table >= 0, np.arange(steps)[:, None], 0), axis=0)
    each = [prices[name.rsplit("-", 1)[0]] for name in names]
    return CapacityRecord(
        step_s,
        tuple(names),
        np.take_along_axis(table, known, axis=0),
        np.array([spot for spot, _ in each]),
        np.array([dear for _, dear in each]),
    )
