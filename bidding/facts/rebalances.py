"""What follows from rebalance recommendations: how soon the machines were taken, and the hazard of their market.

EC2 says that a machine is at elevated risk, and not how much. So that is learnt: losses over exposure in the hour after
a recommendation, over all markets. It starts from the market's own hazard, which counts as one machine that was seen
for that hour.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proteus_spot.bidding.facts.records import Life, Rebalance
from proteus_spot.bidding.facts.survival import Survival
from proteus_spot.bidding.market.model import HOUR_S

#: A recommendation tells of its market for this long.
FRESH_S = HOUR_S


@dataclass(frozen=True, slots=True)
class AfterRebalance:
    """What became of the machines of recommendations.

    Attributes
    ----------
    count, taken : machines that were seen after their recommendation, and those taken within `FRESH_S` of it.
    exposure_s : for how long they were seen within `FRESH_S`.
    newest_s : the newest recommendation; None where there is none.
    """

    count: int = 0
    taken: int = 0
    exposure_s: float = 0.0
    newest_s: int | None = None


def after_rebalance(found: Iterable[Rebalance], lives: Sequence[Life]) -> AfterRebalance:
    """Return what became of the machines of recommendations, by their lives."""
    by_name = {life.instance_id: life for life in lives if life.instance_id}
    seen = [(each.at_s, by_name[each.instance_id]) for each in found if each.instance_id in by_name]
    seen_s = [life.until_s - at_s for at_s, life in seen]
    taken = [life.taken and lived_s <= FRESH_S for (_, life), lived_s in zip(seen, seen_s, strict=True)]
    exposure_s = float(sum(min(max(lived_s, 0), FRESH_S) for lived_s in seen_s))
    return AfterRebalance(len(seen), sum(taken), exposure_s, max((at_s for at_s, _ in seen), default=None))


def elevated(usual: Survival, after: AfterRebalance) -> Survival:
    """Return the survival in a market while a recommendation there is fresh; it is never better than the usual one."""
    hazards = ((after.taken + each * FRESH_S) / (after.exposure_s + FRESH_S) for each in usual.hazards_per_s)
    higher = tuple(max(pair) for pair in zip(hazards, usual.hazards_per_s, strict=True))
    return replace(usual, hazards_per_s=higher)
