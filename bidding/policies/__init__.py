"""Bidding policies, one file each, by the name that users type."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from bidding.decisions import Policy
from bidding.eviction import DELTAS_MICROS
from bidding.policies.above import AbovePolicy
from bidding.policies.best import BestPolicy
from bidding.policies.fixed_delta import PATTERN, delta_of
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
FORESEEING: frozenset[str] = frozenset({"best"})
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
