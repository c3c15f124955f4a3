"""Schemes by name, and the elasticities that they stand on."""

import pytest

from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES, scheme, schemes
from proteus_spot.bidding.economics.elasticity import AgileML, Checkpointing
from tests.bidding.backtest.cases import TYPES

REFERENCE = Reference(TYPES["small"])


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_has_its_name(name: str) -> None:
    assert scheme(name) is SCHEMES[name]


def test_a_fixed_delta_is_dollars_above_the_price() -> None:
    assert scheme("fixed-delta:0.01").parameters == (10_000.0,)
    assert scheme("fixed-delta:0").parameters == (0.0,)
    assert scheme("fixed-delta:0.0001") == scheme("just-above")
    assert scheme("fixed-delta:0.01").rule is SchemeId.ABOVE


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bid-high", "there is no scheme 'bid-high'; there are on-demand, .*fixed-delta:USD"),
        ("", "there is no scheme ''"),
        ("proteus:1", "there is no scheme 'proteus:1'"),
        ("fixed-delta", "'fixed-delta': the bid delta is missing, as in fixed-delta:0.01"),
        ("fixed-delta:", "is missing"),
        ("fixed-delta:cheap", "'fixed-delta:cheap': not an amount of money: 'cheap'"),
        ("fixed-delta:nan", "not an amount"),
        ("fixed-delta:-0.01", "from 0 to 1000 dollars"),
        ("fixed-delta:1e9", "from 0 to 1000 dollars"),
        ("fixed-delta:0.0000001", "finer than a micro-dollar"),
    ],
)
def test_what_is_no_scheme_is_said(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        scheme(name)


def test_the_defaults_of_a_setting_are_those_of_agileml() -> None:
    """So that who compares schemes may set them for all, and finds nothing fixed."""
    assert SCHEMES["proteus"].settings == {}
    assert SCHEMES["proteus"].setting(REFERENCE, 2) == JobParameters(
        work_vcpu_s=512 * 7200, window_s=9 * 3600, reliable_micros=200_000
    )


def test_what_a_run_measured_replaces_the_defaults() -> None:
    measured = schemes(AgileML(eviction_overhead_s=5.4, reliable_count=1), Checkpointing(overhead=0.05, interval_s=600))
    setting = scheme("fixed-delta:0.01", measured).setting(REFERENCE, 2)
    assert (setting.eviction_overhead_s, setting.resize_overhead_s, setting.reliable_count) == (5, 20, 1)
    setting = scheme("bidbrain+checkpoint", measured).setting(REFERENCE, 2)
    assert (setting.efficiency_ppm, setting.checkpoint_s, setting.reliable_count) == (950_000, 600, 0)


def test_the_standard_strategy_never_stops_to_grow_and_bidbrain_on_checkpoints_grows_at_once() -> None:
    assert SCHEMES["standard+checkpoint"].setting(REFERENCE, 2).resize_overhead_s == 0
    setting = SCHEMES["bidbrain+checkpoint"].setting(REFERENCE, 2, max_spot_vcpus=600)
    assert setting.resize_overhead_s == 300
    assert setting.allocation_vcpus > setting.max_spot_vcpus
