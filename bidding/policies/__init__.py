"""Bidding policies, one file each, by the name that users type.

The modules:

    base             what a policy is shown, and what it answers: a decision that carries its reason and what it was
                     weighed against
    best             the cheapest hour of work that the recent past of the markets promises: the decisions of the
                     backtest's rule `best`
    cheapest_market  the cheapest market: what several policies buy, each under a bid of its own, and keep until it
                     is taken
    fixed_delta      the bid delta that a name carries: ``fixed-delta:0.01`` bids a cent above the price
    footprint        what is held in the terms of equations (1)-(4), and its cost per work with and without one more
                     allocation
    just_above       always the cheapest market, and a bid a fixed distance above its price: many refunds, and many
                     evictions
    offers           what the markets can sell at the moment, and why what is not bought is not: alike for every
                     policy that weighs markets
    on_demand        never bids: the reliable tier does all the work
    proteus          BidBrain as published: buy what lowers the expected cost per work of the whole footprint, by
                     equations (1)-(4)
    rules            the rules of the policies, each once: for the live ones, and for the compiled schemes of the
                     backtest
    standard         the standard strategy: the cheapest market now, bid the on-demand price, stay until it is taken
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from bidding.evictions.table import DELTAS_MICROS
from bidding.policies.base import Policy
from bidding.policies.best import BestPolicy
from bidding.policies.fixed_delta import PATTERN, delta_of
from bidding.policies.just_above import AbovePolicy
from bidding.policies.on_demand import OnDemandPolicy
from bidding.policies.proteus import ProteusPolicy
from bidding.policies.standard import StandardPolicy

#: Those whose name says all of them; the bid delta of ``fixed-delta:USD`` is in its name.
POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "best": BestPolicy,
        "just-above": partial(AbovePolicy, DELTAS_MICROS[0]),
        "on-demand": OnDemandPolicy,
        "proteus": ProteusPolicy,
        "standard": StandardPolicy,
    }
)
#: All of them, as users type them.
NAMES: tuple[str, ...] = tuple(sorted((*POLICIES, PATTERN)))
#: Those that weigh the markets' signals by a foresight.
FORECAST_POLICIES: frozenset[str] = frozenset({"best"})
#: Those that buy all of the cap in one allocation where they are not told how large one is.
AT_ONCE: frozenset[str] = frozenset({"best", "standard"})


def policy(name: str) -> Policy:
    """Return the policy called `name`, as in ``proteus`` or ``fixed-delta:0.01``.

    Raises
    ------
    ValueError
        If there is none of that name (it names those that there are), or a fixed bid delta is none.
    """
    if name in POLICIES:
        return POLICIES[name]()
    delta_micros = delta_of(name)
    if delta_micros is None:
        raise ValueError(f"unknown policy {name!r}; there are {', '.join(NAMES)}")
    return AbovePolicy(delta_micros)
