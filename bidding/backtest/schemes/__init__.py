"""The rules by number, for the compiled loop. A further one is a file with `acquire` and `renews`, and a line in each switch.

The modules:

    best             the cheapest hour of work that the recent past promises: all of the cap in one market, and
                     afresh at each hour's end
    cheapest_market  the cheapest market: what several rules buy
    just_above       always the cheapest market, and a bid a fixed distance above its price: many refunds, and many
                     evictions
    oracle           who knows the prices of the coming hour: what foresight alone would win, by moves that any
                     scheme could make
    proteus          BidBrain as published, equations (1)-(4): the decisions of `bidding.policies.proteus`, by the
                     same arithmetic
    registry         the schemes that are compared, by the name that users type: what decides, and what bears the
                     losses
    standard         the standard strategy: the cheapest market now, bid the on-demand price, stay until it is taken
"""

from enum import IntEnum

from bidding.backtest.schemes import best, oracle, proteus, standard
from bidding.backtest.schemes import just_above as above
from bidding.backtest.view import NOTHING, SchemeView
from bidding.jit import inline_jit


class SchemeId(IntEnum):
    """What decides."""

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
