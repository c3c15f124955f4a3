"""The chance and the size of a grant, by the last answers and the time of day.

A market that answered a moment ago answers the same again, the less likely the longer ago that was; else it answers as
it usually does at that time of the day. How fast the last answer loses its weight is learnt from pairs of answers.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.facts.records import RequestAnswer
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S, Market

#: Shares of what was asked are counted in steps of a quarter: none, up to a quarter, …, all but some, all.
SHARES = (0.0, 0.125, 0.375, 0.625, 0.875, 1.0)
#: Length of the parts of a day for which grants are counted.
PART_S = 6 * HOUR_S
#: Times in which the weight of the last answer falls to 1/e, of which one is chosen.
MEMORIES_S = tuple(minutes * MINUTE_S for minutes in (10, 20, 40, 80, 160, 320, 640))
#: Answers that what is usual counts for, at each level: all markets, a market, a part of the day.
_WEIGHT = 4.0
#: What is usual before anything is known: shares of answers in each class of `SHARES`.
_PRIOR = np.array([0.3, 0.08, 0.08, 0.08, 0.08, 0.38])

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GrantOutlook:
    """What a request would get.

    Attributes
    ----------
    shares : probability of each class of `SHARES`.
    answers : number of answers of this market that it was learnt from.
    newest_s : the newest of them; None where there is none.
    """

    shares: tuple[float, ...]
    answers: int = 0
    newest_s: int | None = None

    @property
    def chance(self) -> float:
        """Probability that some machines are granted."""
        return 1.0 - self.shares[0]

    @property
    def size(self) -> float:
        """Expected share of what is asked, where some are granted."""
        granted = sum(share * p for share, p in zip(SHARES, self.shares, strict=True))
        return granted / self.chance if self.chance > 0 else 0.0

    def band(self, asked: int, tail: float = 0.025) -> tuple[int, int]:
        """Return the least and the greatest number of machines of the central band of a request for `asked`."""
        below = np.cumsum(self.shares)
        first = int((below > tail).argmax())
        last = int((below >= 1 - tail - 1e-12).argmax())
        lows, highs = _edges(asked)
        return lows[first], highs[last]


def outlooks(answers: Iterable[RequestAnswer], markets: Sequence[Market], now_s: int) -> dict[Market, GrantOutlook]:
    """Return what each of `markets` would grant at `now_s`, learnt from all `answers`."""
    by_market: dict[Market, list[RequestAnswer]] = defaultdict(list)
    for answer in sorted((each for each in answers if each.asked > 0), key=lambda each: each.at_s):
        if answer.at_s <= now_s:
            by_market[answer.market].append(answer)
    usual = _Usual(by_market)
    memory_s = _memory_s(by_market, usual)
    found = {}
    for market in markets:
        own = by_market.get(market, [])
        shares = usual.at(market, now_s)
        if own:
            weight = exp(-(now_s - own[-1].at_s) / memory_s)
            shares = weight * _same(own[-1]) + (1 - weight) * shares
        found[market] = GrantOutlook(tuple(shares.tolist()), len(own), own[-1].at_s if own else None)
    return found


class _Usual:
    """How markets usually answer, by part of the day; each level starts from the one above it."""

    def __init__(self, by_market: dict[Market, list[RequestAnswer]]) -> None:
        self._own: dict[Market, Float64s] = {}
        for market, answers in by_market.items():
            counts = np.zeros((DAY_S // PART_S, len(SHARES)))
            for answer in answers:
                counts[_part(answer.at_s), _class(answer)] += 1
            self._own[market] = counts
        total = sum((counts.sum(axis=0) for counts in self._own.values()), np.zeros(len(SHARES)))
        self._all = _updated(_PRIOR, total)

    def at(self, market: Market, at_s: int) -> Float64s:
        """Return the probability of each class at a time of the day."""
        if market not in self._own:
            return self._all
        counts = self._own[market]
        return _updated(_updated(self._all, counts.sum(axis=0)), counts[_part(at_s)])


def _memory_s(by_market: dict[Market, list[RequestAnswer]], usual: _Usual) -> float:
    """Return the memory under which the answers that followed one another are the most likely."""
    pairs = [
        (market, before, after) for market, answers in by_market.items() for before, after in pairwise(answers[-200:])
    ]
    if not pairs:
        return float(MEMORIES_S[len(MEMORIES_S) // 2])

    def likelihood(memory_s: float) -> float:
        total = 0.0
        for market, before, after in pairs:
            weight = exp(-(after.at_s - before.at_s) / memory_s)
            shares = weight * _same(before) + (1 - weight) * usual.at(market, after.at_s)
            total += log(shares[_class(after)])
        return total

    return float(max(MEMORIES_S, key=likelihood))


def _same(answer: RequestAnswer) -> Float64s:
    """Return the probability of each class in a market as at this answer: that class, or an adjacent one."""
    shares = np.zeros(len(SHARES))
    at = _class(answer)
    shares[at] = 0.8
    shares[max(at - 1, 0)] += 0.1
    shares[min(at + 1, len(SHARES) - 1)] += 0.1
    return shares


def _class(answer: RequestAnswer) -> int:
    if answer.granted <= 0:
        return 0
    if answer.granted >= answer.asked:
        return len(SHARES) - 1
    return 1 + min(4 * answer.granted // answer.asked, 3)


def _edges(asked: int) -> tuple[list[int], list[int]]:
    """Return the least and the greatest number of machines of each class."""
    classes = [_class(RequestAnswer(0, Market("", ""), asked, count)) for count in range(asked + 1)]
    lows = [min((n for n, at in enumerate(classes) if at >= wanted), default=asked) for wanted in range(len(SHARES))]
    highs = [max((n for n, at in enumerate(classes) if at <= wanted), default=0) for wanted in range(len(SHARES))]
    return lows, highs


def _part(at_s: int) -> int:
    return at_s % DAY_S // PART_S


def _updated(before: Float64s, counts: Float64s) -> Float64s:
    """Return the probabilities after counts, where those before count as `_WEIGHT` answers."""
    updated: Float64s = (counts + _WEIGHT * before) / (counts.sum() + _WEIGHT)
    return updated
