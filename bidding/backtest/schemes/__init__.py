"""The rules by number, for the compiled loop.

A new rule is a file with `acquire` and `renews`, and a line in each switch. The modules:

    best             rule `best`: the hour of work that the forecast expects to be cheapest, chosen every hour
    cheapest_market  the cheapest market on sale, shared by `standard` and `just_above`
    just_above       rule `just-above`: the cheapest market, a fixed bid delta
    oracle           rule with knowledge of the coming hour's prices, for comparison
    proteus          rule `proteus`: BidBrain as published, equations (1)-(4)
    scheme_registry  the schemes by the name that users type: a rule on an elasticity
    standard         rule `standard`: the cheapest market, bid at the on-demand price
"""

from enum import IntEnum

from proteus_spot.bidding.backtest.schemes import best, oracle, proteus, standard
from proteus_spot.bidding.backtest.schemes import just_above as above
from proteus_spot.bidding.backtest.view import NOTHING, SchemeView
from proteus_spot.bidding.jit import inline_jit


class SchemeId(IntEnum):
    """Number of a rule."""

    NONE = 0  # buys nothing
    STANDARD = 1
    PROTEUS = 2
    ABOVE = 3
    BEST = 4
    ORACLE = 5  # knows the coming hour: no rule for a real market


_STANDARD, _PROTEUS, _ABOVE, _BEST = (
    int(SchemeId.STANDARD),
    int(SchemeId.PROTEUS),
    int(SchemeId.ABOVE),
    int(SchemeId.BEST),
)
_ORACLE = int(SchemeId.ORACLE)


@inline_jit
def acquire(rule: int, view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of what to buy now; market -1: nothing."""
    if rule == _STANDARD:
        return standard.acquire(view)
    if rule == _PROTEUS:
        return proteus.acquire(view)
    if rule == _ABOVE:
        return above.acquire(view)
    if rule == _ORACLE:
        return oracle.acquire(view)
    if rule == _BEST:
        return best.acquire(view)
    return NOTHING


@inline_jit
def renews(rule: int, view: SchemeView, slot: int) -> bool:
    """Return whether the allocation in `slot` is kept for the hour after `paid_until_s`."""
    if rule == _STANDARD:
        return standard.renews(view, slot)
    if rule == _PROTEUS:
        return proteus.renews(view, slot)
    if rule == _ABOVE:
        return above.renews(view, slot)
    if rule == _ORACLE:
        return oracle.renews(view, slot)
    if rule == _BEST:
        return best.renews(view, slot)
    return False
