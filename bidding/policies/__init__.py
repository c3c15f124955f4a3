"""Bidding policies, one file each, by the name that users type.

The modules:

    base             the `Policy` Protocol, its input `MarketView`, and its output `Decision`
    best             policy `best`: the hour of work that the forecast expects to be cheapest
    cheapest_market  purchase in the cheapest market, shared by `standard` and `just_above`
    deadline/        policy `deadline`: the deadline is kept at the least expected cost; no bids
    fixed_delta      names with a bid delta: ``fixed-delta:0.01`` bids a cent above the price
    footprint        the held allocations in the terms of equations (1)-(4), and their cost per work
    just_above       policies `just-above` and `fixed-delta`: the cheapest market, a fixed bid delta
    limits           limits of money, time and use on what a policy decides
    offers           instances that each market can sell now, and why a market or candidate is excluded
    on_demand        policy `on-demand`: no bids, the reliable tier does all the work
    proteus          policy `proteus`: BidBrain as published, equations (1)-(4)
    rules            rules shared by the live policies and the compiled schemes of the backtest
    standard         policy `standard`: the cheapest market, bid at the on-demand price
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from proteus_spot.bidding.evictions.table import DELTAS_MICROS
from proteus_spot.bidding.policies.base import Policy
from proteus_spot.bidding.policies.best import BestPolicy
from proteus_spot.bidding.policies.deadline import DeadlinePolicy
from proteus_spot.bidding.policies.fixed_delta import PATTERN, delta_of
from proteus_spot.bidding.policies.just_above import AbovePolicy
from proteus_spot.bidding.policies.on_demand import OnDemandPolicy
from proteus_spot.bidding.policies.proteus import ProteusPolicy
from proteus_spot.bidding.policies.standard import StandardPolicy

#: Policies with a fixed name; ``fixed-delta:USD`` carries its bid delta in its name.
POLICIES: Mapping[str, Callable[[], Policy | DeadlinePolicy]] = MappingProxyType(
    {
        "best": BestPolicy,
        "deadline": DeadlinePolicy,
        "just-above": partial(AbovePolicy, DELTAS_MICROS[0]),
        "on-demand": OnDemandPolicy,
        "proteus": ProteusPolicy,
        "standard": StandardPolicy,
    }
)
#: Names of all policies, as users type them.
NAMES: tuple[str, ...] = tuple(sorted((*POLICIES, PATTERN)))
#: Policies that weigh the markets' signals by a forecast.
FORECAST_POLICIES: frozenset[str] = frozenset({"best"})
#: Policies that buy the whole cap in one allocation unless its size is set.
AT_ONCE: frozenset[str] = frozenset({"best", "deadline", "standard"})


def policy(name: str) -> Policy | DeadlinePolicy:
    """Return the policy called `name`, as in ``proteus`` or ``fixed-delta:0.01``.

    Raises
    ------
    ValueError
        If no policy has that name (the message lists all names), or a fixed bid delta is invalid.
    """
    if name in POLICIES:
        return POLICIES[name]()
    delta_micros = delta_of(name)
    if delta_micros is None:
        raise ValueError(f"unknown policy {name!r}; there are {', '.join(NAMES)}")
    return AbovePolicy(delta_micros)
