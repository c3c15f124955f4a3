"""Futures of a job by what is known of its markets: what it costs and when it ends, drawn many times.

A future goes in steps of ten minutes. A market answers as it is expected to now, and draws another answer now and then;
it takes machines by their age, several together. The job asks the market with the cheapest work first, whatever its
policy. With a deadline it goes on demand when on-demand machines could just still finish it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.economics.deadline import MEASURED_MARGIN
from proteus_spot.bidding.facts.grants import SHARES
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.survival import AGES_S
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S, Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR

_STEP_S = 10 * MINUTE_S
#: Mean time for which a market answers alike.
_ALIKE_S = 40 * MINUTE_S
#: Seconds until machines on demand work.
_SWITCH_S = 10 * MINUTE_S
#: A future is given up after this.
_LONGEST_S = 14 * DAY_S

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FutureJob:
    """A job whose futures are drawn.

    Attributes
    ----------
    work_vcpu_s : useful seconds of one vCPU.
    max_vcpus : spot vCPUs held at most; as many are bought on demand where the deadline forces it.
    efficiency : share of a vCPU's time that becomes work.
    eviction_s, resize_s : seconds that the whole job stops at a loss, and at any change.
    reliable_usd_per_h : what its reliable tier costs.
    vcpus : vCPUs of a machine, by type.
    speeds : how fast a vCPU of a type works, where that was measured; 1 elsewhere.
    """

    work_vcpu_s: float
    max_vcpus: int
    efficiency: float
    eviction_s: float
    resize_s: float
    reliable_usd_per_h: float
    vcpus: Mapping[str, int]
    deadline_s: int | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Futures:
    """What became of each drawn future; shape (futures,) each.

    Attributes
    ----------
    cost_usd, hours : of those that were given up, up to then.
    finished, on_demand : whether the work was done; whether on-demand machines had to finish it.
    losses : machines that were taken.
    """

    cost_usd: Floats
    hours: Floats
    finished: NDArray[np.bool_]
    on_demand: NDArray[np.bool_]
    losses: Floats


def draw_futures(job: FutureJob, known: Mapping[Market, MarketKnown], count: int, rng: np.random.Generator) -> Futures:
    """Return `count` futures of a job in the markets that are known and have a price.

    Raises
    ------
    ValueError
        If no market has a price, or none has one on demand.
    """
    markets = [market for market, each in known.items() if each.price_micros and each.on_demand_micros]
    if not markets:
        raise ValueError("no market of the job has a price yet")
    return _Drawn(job, [known[market] for market in markets], count, rng).to_the_end()


class _Drawn:
    """Futures under way; arrays have the shape (futures,) or (futures, markets)."""

    def __init__(self, job: FutureJob, known: Sequence[MarketKnown], count: int, rng: np.random.Generator) -> None:
        self._job, self._rng = job, rng
        sizes = [job.vcpus[each.market.instance_type] for each in known]
        self._vcpus = np.array(sizes, dtype=np.int64)
        self._speeds = np.array([job.speeds.get(each.market.instance_type, 1.0) for each in known])
        self._usd = (
            np.array([each.price_micros.value if each.price_micros else 0 for each in known]) / MICROS_PER_DOLLAR
        )
        dollars = [each.on_demand_micros.value for each in known if each.on_demand_micros]
        on_demand = np.array(dollars) / self._vcpus / MICROS_PER_DOLLAR
        best = int(np.argmin(on_demand / self._speeds))
        self._on_demand_usd, self._on_demand_work = float(on_demand[best]), job.max_vcpus * float(self._speeds[best])
        self._order = np.argsort(self._usd / self._vcpus / self._speeds, kind="stable")
        self._hazards = np.array([each.survival.hazards_per_s for each in known])
        self._together = known[0].bursts.share
        self._shares = np.cumsum(np.array([each.grant.shares for each in known]), axis=1)
        shape = (count, len(known))
        self._held = np.zeros(shape, dtype=np.int64)
        self._age_s = np.zeros(shape)
        self._answer = self._draw_answers(shape)
        self._left = np.full(count, job.work_vcpu_s, dtype=np.float64)
        self._found = Futures(
            np.zeros(count), np.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.zeros(count)
        )

    def to_the_end(self) -> Futures:
        found, at_s = self._found, 0
        while at_s < _LONGEST_S and not found.finished.all():
            self._step(at_s)
            at_s += _STEP_S
        return found

    def _step(self, at_s: int) -> None:
        found, job = self._found, self._job
        goes = ~found.finished
        if job.deadline_s is not None:
            on_demand_s = self._left / (self._on_demand_work * job.efficiency) * (1 + MEASURED_MARGIN) + _SWITCH_S
            found.on_demand[goes & (at_s + on_demand_s + _STEP_S >= job.deadline_s)] = True
        lost = np.where((goes & ~found.on_demand)[:, None], self._take(), 0)
        self._held -= lost
        self._held[found.on_demand] = 0
        gained = self._buy(goes & ~found.on_demand)
        held = (self._held * self._vcpus * self._speeds).sum(axis=1)
        works = np.where(found.on_demand, self._on_demand_work, held)
        stops_s = job.eviction_s * (lost.sum(axis=1) > 0) + job.resize_s * (gained > 0)
        speed = works * job.efficiency
        work = speed * np.maximum(_STEP_S - stops_s, 0.0)
        lasts_s = np.where(work >= self._left, self._left / np.maximum(speed, 1e-9) + stops_s, _STEP_S)
        usd_per_h = np.where(found.on_demand, job.max_vcpus * self._on_demand_usd, (self._held * self._usd).sum(axis=1))
        found.cost_usd[goes] += ((usd_per_h + job.reliable_usd_per_h) * lasts_s / HOUR_S)[goes]
        found.hours[goes] += lasts_s[goes] / HOUR_S
        found.losses[goes] += lost.sum(axis=1)[goes]
        self._left = np.maximum(self._left - np.where(goes, work, 0.0), 0.0)
        self._age_s += _STEP_S
        found.finished[self._left <= 0] = True

    def _take(self) -> NDArray[np.int64]:
        """Return how many machines each market takes in a step: bursts, each of a machine and a share of the others."""
        ages = np.searchsorted(AGES_S, self._age_s, side="right") - 1
        hazard = self._hazards[np.arange(self._held.shape[1]), ages]
        size = 1 + self._together * np.maximum(self._held - 1, 0)
        count = self._rng.poisson(self._held * hazard * _STEP_S / size)
        more = self._rng.binomial(count * np.maximum(self._held - 1, 0), self._together)
        taken: NDArray[np.int64] = np.minimum(count + more, self._held)
        return taken

    def _buy(self, buying: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Ask each market in the order of its price; return how many machines each future gained."""
        again = self._rng.random(self._answer.shape) < -np.expm1(-_STEP_S / _ALIKE_S)
        self._answer = np.where(again, self._draw_answers(self._answer.shape), self._answer)
        gained = np.zeros(len(buying), dtype=np.int64)
        for market in self._order:
            room = self._job.max_vcpus - (self._held * self._vcpus).sum(axis=1)
            asked = np.where(buying, np.maximum(room // self._vcpus[market], 0), 0)
            bought = np.ceil(asked * self._answer[:, market] - 1e-9).astype(np.int64)
            held = self._held[:, market]
            self._age_s[:, market] *= np.where(bought > 0, held / np.maximum(held + bought, 1), 1.0)
            self._held[:, market] += bought
            gained += bought
        return gained

    def _draw_answers(self, shape: tuple[int, int]) -> Floats:
        """Return the share of what is asked that each market grants."""
        classes = (self._rng.random(shape)[..., None] > self._shares).sum(axis=2)
        answers: Floats = np.array(SHARES)[np.minimum(classes, len(SHARES) - 1)]
        return answers
