"""The policies by name, and the one that never holds spot machines."""

import pytest
from hypothesis import given

from proteus_spot.bidding.policies import POLICIES, policy
from proteus_spot.bidding.policies.base import Choice
from tests.support.markets import (
    PROPERTY,
    views,
)


@PROPERTY
@given(views())
def test_on_demand_never_holds_spot_machines(here):
    never = policy("on-demand")
    assert never.acquisition(here).verdict is Choice.WAIT
    assert all(never.renewal(here, a).verdict is Choice.LAPSE for a in here.footprint)


def test_an_unknown_policy_is_refused_with_those_there_are():
    with pytest.raises(
        ValueError, match=r"unknown policy 'prot'; there are best, deadline, fixed-delta:USD, just-above, on-demand, "
    ):
        policy("prot")
    assert all(policy(name) is not policy(name) for name in POLICIES)
