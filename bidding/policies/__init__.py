"""Bidding policies, one file each, by the name that users type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bidding.decisions import Policy
from bidding.policies.best import BestPolicy
from bidding.policies.on_demand import OnDemandPolicy
from bidding.policies.proteus import ProteusPolicy

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {"best": BestPolicy, "on-demand": OnDemandPolicy, "proteus": ProteusPolicy}
)
#: Those that weigh the markets' signals by a foresight.
FORESEEING: frozenset[str] = frozenset({"best"})
#: Those that buy all of the cap in one allocation where they are not told how large one is.
AT_ONCE: frozenset[str] = frozenset({"best"})


def policy(name: str) -> Policy:
    """Return the policy called `name`; `ValueError` names those that there are."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]()
