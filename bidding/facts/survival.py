"""How long machines live: the hazard by age, pooled over similar markets while little is known, and losses in bursts.

*Source*: W. Nelson, "Theory and applications of hazard plotting for censored failure data" (1972): losses over exposure
by age. A machine that was let go, or lives, counts for the time that it was seen.
*Differs*: the hazard is constant within an age class, so that few losses give a curve at all ages; each level (all
markets, a type, a market) starts from the level above it, which counts as one loss.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.facts.records import Life
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S, Market

#: Where the age classes begin; the last has no end.
AGES_S: tuple[int, ...] = (0, 10 * MINUTE_S, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S, DAY_S)
#: Hazard of a market of which nothing is known: a machine in 50 an hour.
PRIOR_PER_H = 0.02
#: Losses of a market within this of one another are one burst.
BURST_S = 3 * MINUTE_S

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Survival:
    """How long a machine of a market lives.

    Attributes
    ----------
    hazards_per_s : hazard in each age class of `AGES_S`.
    losses, exposure_s : what it was learnt from in this market alone.
    newest_s : end of the newest life; None where there is none.
    """

    hazards_per_s: tuple[float, ...]
    losses: int = 0
    exposure_s: float = 0.0
    newest_s: int | None = None

    def lives(self, ahead_s: float, age_s: float = 0.0) -> float:
        """Return the probability that a machine of an age lives `ahead_s` more."""
        return exp(-_cumulative(self.hazards_per_s, age_s + ahead_s) + _cumulative(self.hazards_per_s, age_s))


@dataclass(frozen=True, slots=True)
class Bursts:
    """How many machines a market takes together.

    Attributes
    ----------
    share : expected share of a market's other machines that is taken with one.
    count, lost : bursts seen in which others were there, and the machines lost in them.
    """

    share: float
    count: int = 0
    lost: int = 0

    def size(self, held: int) -> float:
        """Return how many of `held` machines are lost when one is."""
        return 1.0 + self.share * (held - 1) if held else 0.0


def survivals(
    lives: Iterable[Life], markets: Sequence[Market], prior_per_h: Mapping[Market, float] | None = None
) -> dict[Market, Survival]:
    """Return the survival in each of `markets`, learnt from all `lives`.

    Parameters
    ----------
    prior_per_h : hazard of a market before anything is known of it or of similar ones, as by its advisor band; those
        without one start from `PRIOR_PER_H`.
    """
    by_market: dict[Market, list[Life]] = defaultdict(list)
    for life in lives:
        by_market[life.market].append(life)
    seen = {market: _losses_and_exposure(each) for market, each in by_market.items()}
    by_type: dict[str, Float64s] = defaultdict(lambda: np.zeros((2, len(AGES_S))))
    everywhere = np.zeros((2, len(AGES_S)))
    for market, figures in seen.items():
        by_type[market.instance_type] += figures
        everywhere += figures
    found = {}
    for market in markets:
        prior = np.full(len(AGES_S), (prior_per_h or {}).get(market, PRIOR_PER_H) / HOUR_S)
        own = seen.get(market, np.zeros((2, len(AGES_S))))
        hazards = _updated(_updated(_updated(prior, everywhere), by_type[market.instance_type]), own)
        ends = [life.until_s for life in by_market.get(market, ())]
        found[market] = Survival(
            tuple(hazards.tolist()), int(own[0].sum()), float(own[1].sum()), max(ends, default=None)
        )
    return found


def bursts(lives: Iterable[Life]) -> Bursts:
    """Return how many machines are taken together, over all markets.

    Notes
    -----
    The share is the mean of a beta distribution that begins at one of two. Of a burst all machines count that were
    there at its first loss.
    """
    by_market: dict[Market, list[Life]] = defaultdict(list)
    for life in lives:
        by_market[life.market].append(life)
    others = more = count = lost = 0
    for each in by_market.values():
        began_s = sorted(life.launched_at_s for life in each)
        ended_s = sorted(life.until_s for life in each)
        for first_s, taken in _bursts_of(each):
            there = bisect_right(began_s, first_s) - bisect_left(ended_s, first_s)
            if there > 1:
                others, more = others + there - 1, more + taken - 1
                count, lost = count + 1, lost + taken
    return Bursts((more + 1) / (others + 2), count, lost)


def _bursts_of(lives: Sequence[Life]) -> list[tuple[int, int]]:
    """Return the first loss of each burst of one market, and its number of losses."""
    ends = sorted(life.until_s for life in lives if life.taken)
    found: list[tuple[int, int]] = []
    for at_s in ends:
        if found and at_s - found[-1][0] <= BURST_S:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((at_s, 1))
    return found


def _losses_and_exposure(lives: Sequence[Life]) -> Float64s:
    """Return the losses and the machine-seconds in each age class, shape (2, classes)."""
    edges = np.array([*AGES_S, np.inf])
    ages_s = np.array([max(life.until_s - life.launched_at_s, 0) for life in lives])
    exposure = np.clip(ages_s[:, None] - edges[:-1], 0, np.diff(edges)).sum(axis=0)
    lost = ages_s[[life.taken for life in lives]]
    classes = np.maximum(np.searchsorted(AGES_S, lost) - 1, 0)  # those that they lived in
    return np.array([np.bincount(classes, minlength=len(AGES_S)), exposure])


def _updated(before: Float64s, figures: Float64s) -> Float64s:
    """Return the hazards after losses and exposure, where those before count as one loss."""
    updated: Float64s = (figures[0] + 1) / (figures[1] + 1 / before)
    return updated


def _cumulative(hazards_per_s: tuple[float, ...], age_s: float) -> float:
    total = 0.0
    for hazard, (begins_s, ends_s) in zip(hazards_per_s, pairwise([*AGES_S, float("inf")]), strict=True):
        total += hazard * max(min(age_s, ends_s) - begins_s, 0.0)
    return total
