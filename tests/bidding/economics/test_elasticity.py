"""Elasticities: the papers' defaults, what a run measured, and the best interval between checkpoints."""

import json
from math import inf, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.elasticity import (
    AgileML,
    Checkpointing,
    elasticity_record,
    load_elasticity,
    mean_time_to_eviction_s,
)
from tests.support.markets import PROPERTY

HOUR = 3600


def test_the_defaults_are_the_papers() -> None:
    assert AgileML().settings() == {
        "eviction_overhead_s": 60,
        "resize_overhead_s": 20,
        "efficiency_ppm": 1_000_000,
        "reliable_count": 3,
        "reliable_vcpus": 4,
        "reliable_works": 0,
    }
    assert Checkpointing().settings() == {
        "eviction_overhead_s": 0,
        "resize_overhead_s": 300,
        "efficiency_ppm": 830_000,
        "checkpoint_s": 1800,
        "restart_s": 300,
        "reliable_count": 0,
    }
    assert Checkpointing().write_s == pytest.approx(306)


def test_an_eviction_costs_the_restart_and_half_an_interval() -> None:
    assert Checkpointing().eviction_overhead_s == 300 + 900
    assert Checkpointing(interval_s=600, restart_s=20).eviction_overhead_s == 320


# -- the interval -----------------------------------------------------------------------------------------------------


def lost(elasticity: Checkpointing, interval_s: float, mean_s: float) -> float:
    """Share of the time that goes to checkpoints and to repeated work, restarts apart, to the first order."""
    return elasticity.write_s / interval_s + interval_s / (2 * mean_s)


@PROPERTY
@given(
    mean_s=st.floats(2 * HOUR, 100 * 24 * HOUR),
    other=st.floats(0.2, 5),
    write_s=st.floats(1, 300),
)
def test_another_interval_loses_more(mean_s: float, other: float, write_s: float) -> None:
    elasticity = Checkpointing(overhead=write_s / 1800)
    best = elasticity.for_mean_time(mean_s)
    assert best.write_s == pytest.approx(write_s)
    if best.interval_s < 24 * HOUR:
        # the exact loss is flatter than its first order
        assert lost(elasticity, best.interval_s, mean_s) <= lost(elasticity, best.interval_s * other, mean_s) * 1.05


def test_the_interval_is_youngs_where_checkpoints_are_short() -> None:
    best = Checkpointing(overhead=1 / 1800).for_mean_time(100 * HOUR)
    assert best.interval_s == pytest.approx(sqrt(2 * 100 * HOUR), rel=1e-3)
    assert best.overhead == pytest.approx(1 / best.interval_s)
    assert best.restart_s == 300


def test_the_interval_has_its_limits() -> None:
    assert Checkpointing().for_mean_time(inf).interval_s == 24 * HOUR
    assert Checkpointing().for_mean_time(100).interval_s == pytest.approx(
        406
    )  # a checkpoint takes more than twice 100 s
    for elasticity, mean_s in ((Checkpointing(overhead=0), 100.0), (Checkpointing(), 0.0)):
        with pytest.raises(ValueError, match="no best interval"):
            elasticity.for_mean_time(mean_s)


def test_the_mean_time_to_an_eviction_at_a_constant_hazard() -> None:
    assert mean_time_to_eviction_s(0) == inf
    assert mean_time_to_eviction_s(1) == 0
    assert mean_time_to_eviction_s(1 - 1 / 2.718281828459045) == pytest.approx(HOUR)
    with pytest.raises(ValueError, match="probability"):
        mean_time_to_eviction_s(1.1)


# -- what a run measured ----------------------------------------------------------------------------------------------


def figures(seconds: list[float], *events: tuple[str, int]) -> dict[str, Any]:
    return {"seconds_by_clock": seconds, "events": [{"action": action, "clock": clock} for action, clock in events]}


def test_an_event_costs_what_the_clocks_after_it_took_longer_than_those_that_follow() -> None:
    """A kill at clock 5: 9 s more; fewer machines, so 2 s a clock from then on. A join at clock 15: 4 s more."""
    seconds = [1.0] * 5 + [8.0, 5.0, 2.0] + [2.0] * 7 + [1.0, 3.0, 3.0] + [1.0] * 7
    measured = AgileML.from_measured(figures(seconds, ("kill", 5), ("join", 15)), reliable_count=2)
    assert measured == AgileML(eviction_overhead_s=9.0, resize_overhead_s=4.0, reliable_count=2)


def test_events_of_a_kind_are_averaged_and_what_was_not_seen_keeps_its_default() -> None:
    seconds = [1.0] * 5 + [3.0] + [1.0] * 9 + [5.0] + [1.0] * 9
    measured = AgileML.from_measured(figures(seconds, ("notice", 5), ("kill", 15)))
    assert measured == AgileML(eviction_overhead_s=3.0)
    assert AgileML.from_measured(figures(seconds)) == AgileML()
    assert AgileML.from_measured(figures([1.0, 2.0], ("kill", 1))) == AgileML()  # it ended too soon to tell


def test_an_event_that_sped_the_job_up_costs_nothing() -> None:
    seconds = [1.0] * 5 + [0.5] * 3 + [1.0] * 10
    assert AgileML.from_measured(figures(seconds, ("drain", 5))).resize_overhead_s == 0


@pytest.mark.parametrize("wrong", [{}, {"seconds_by_clock": [1.0]}, {"seconds_by_clock": None, "events": []}])
def test_what_are_no_figures_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not the figures"):
        AgileML.from_measured(wrong)


# -- by name ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elasticity", [AgileML(45.5, 3, 0.9, 2, 8, True), Checkpointing(0.1, 900, 60, 0)])
def test_a_record_is_read_as_what_was_written(elasticity: AgileML | Checkpointing) -> None:
    assert load_elasticity(json.loads(json.dumps(elasticity_record(elasticity)))) == elasticity


def test_what_a_record_leaves_out_is_the_default() -> None:
    assert load_elasticity({"model": "agileml", "eviction_overhead_s": 12}) == AgileML(eviction_overhead_s=12)
    assert load_elasticity({"model": "checkpointing"}) == Checkpointing()


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({}, "model is None: it must be one of agileml, checkpointing"),
        ({"model": ["agileml"]}, "it must be one of"),
        ({"model": "agileml", "lambda": 3}, "lambda: agileml has no such number; it has eviction_overhead_s"),
        ({"model": "agileml", "eviction_overhead_s": "3"}, "eviction_overhead_s is '3': it must be a number"),
        ({"model": "agileml", "eviction_overhead_s": -1}, "eviction_overhead_s is -1: .* 0 or more"),
        ({"model": "agileml", "eviction_overhead_s": inf}, "eviction_overhead_s is inf"),
        ({"model": "agileml", "scaling_efficiency": 0}, r"scaling_efficiency is 0: .*\(0, 1\]"),
        ({"model": "agileml", "reliable_count": 2.5}, "reliable_count is 2.5: it must be a whole number"),
        ({"model": "agileml", "reliable_count": True}, "reliable_count is True: it must be a whole number"),
        ({"model": "agileml", "reliable_works": 1}, "reliable_works is 1: it must be true or false"),
        ({"model": "checkpointing", "overhead": 1}, "overhead is 1"),
        ({"model": "checkpointing", "interval_s": 0.5}, "interval_s is 0.5"),
    ],
)
def test_what_is_no_elasticity_is_named(record: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_elasticity(record)
