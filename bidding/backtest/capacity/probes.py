"""Where the variants of Uniform Progress look for spot: zones are tried, probed and counted, and asked in their order.

- `(S)`: the cheapest zone first, those of the region that was held last after all others.
- `(A)`: the zone that granted most of its last `REMEMBERED` requests and probes; of equal ones the cheapest.
- `(AP)`: the zone with the most grants, of all requests and probes, by price.

Of `(A)` and `(AP)` a zone that was never asked counts as one that grants half. A held machine counts as a grant after
each interval, and its loss as a refusal.

*Source*: the simulator that SkyNomad's authors published with their paper (NSDI 2027 artifact: the strategies
``rc_cr_threshold_eager_failover``, ``availability_probe_simple`` and ``probe_cost_ratio``).

*Differs*: probes cost nothing; a gang moves only if a better zone has room for it, where theirs gives up its machines
first; zones that users leave out as too dear are not asked.
"""

import numpy as np

from proteus_spot.bidding.backtest.capacity.record import Floats
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

#: Answers that `(A)` remembers of a zone, and seconds between two probes of it.
REMEMBERED, RARELY_S = 5, 2.0 * HOUR_S
#: Seconds between two probes of a zone by `(AP)`, and the share of the best one's grants by price at which it stays.
OFTEN_S, _STAYS = 1.0 * HOUR_S, 0.9
#: Zones that cost more than so many times the cheapest are left out, as users leave them out.
DEAREST = 2.0


@inline_jit
def cheapest(room: Int64s, prices: Floats, machines: int, regions: Int64s, last: int) -> int:
    """Return the cheapest zone with room, those of the region of `last` after all others; -1: none has room."""
    best, most = -1, DEAREST * prices.min()
    for zone in range(len(room)):
        if room[zone] < machines or prices[zone] > most:
            continue
        again, best_again = last >= 0 and regions[zone] == regions[last], False
        if best >= 0:
            best_again = last >= 0 and regions[best] == regions[last]
        if best < 0 or (again, prices[zone]) < (best_again, prices[best]):
            best = zone
    return best


@inline_jit
def note(zone: int, granted: int, forgets: bool, answers: Int64s, grants: Int64s, asked: Int64s) -> None:
    """Count an answer of a zone; `answers` is the ring of the last ones, shape (zones, `REMEMBERED`)."""
    if forgets:
        slot = asked[zone] % answers.shape[1]
        grants[zone] -= answers[zone, slot]
        answers[zone, slot] = granted
    grants[zone] += granted
    asked[zone] += 1


@inline_jit
def _score(zone: int, prices: Floats, forgets: bool, grants: Int64s, asked: Int64s) -> float:
    count = min(asked[zone], REMEMBERED) if forgets else asked[zone]
    share = grants[zone] / count if count else 0.5
    return share if forgets else share / prices[zone]


@inline_jit
def most_granted(
    room: Int64s, prices: Floats, machines: int, at: int, forgets: bool, answers: Int64s, grants: Int64s, asked: Int64s
) -> int:
    """Return the zone that is held next: `at` while it is among the best, else the first of the others with room."""
    zones, most = len(room), DEAREST * prices.min()
    scores = np.full(zones, -1.0)
    for zone in range(zones):
        if prices[zone] <= most:
            scores[zone] = _score(zone, prices, forgets, grants, asked)
    held = scores[at] if 0 <= at < zones else -1.0
    if held >= 0.0 and held >= scores.max() * (1.0 if forgets else _STAYS):
        return at
    while True:
        best = -1
        for zone in range(zones):
            if scores[zone] > held and (best < 0 or (-scores[zone], prices[zone]) < (-scores[best], prices[best])):
                best = zone
        if best < 0:
            return at if held >= 0.0 else -1
        granted = room[best] >= machines
        note(best, int(granted), forgets, answers, grants, asked)
        if granted:
            return best
        scores[best] = -1.0


@inline_jit
def probe(
    room: Int64s, machines: int, at: int, now_s: float, forgets: bool, due_s: Floats, answers: Int64s, grants: Int64s,
    asked: Int64s,
) -> None:  # fmt: skip
    """Ask the zones that are due and not held whether they have room: of `(A)` one, of which least is known."""
    while True:
        next_ = -1
        for zone in range(len(room)):
            if zone != at and now_s >= due_s[zone] and (next_ < 0 or asked[zone] < asked[next_]):
                next_ = zone
        if next_ < 0:
            return
        note(next_, int(room[next_] >= machines), forgets, answers, grants, asked)
        due_s[next_] = now_s + (RARELY_S if forgets else OFTEN_S)
        if forgets:
            return
