"""Records of trials: what they accept, and the seconds of a step on machines of other sizes."""

from typing import Any

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.bidding.tuning.sweep_plan import Direction


def record(**changes: Any) -> RecordedTrials:
    """Return a record of two trials of three steps, measured with 1 and 2 vCPUs."""
    fields: dict[str, Any] = {
        "application": "mlr",
        "metric": "loss",
        "direction": Direction.MINIMIZE,
        "settings": ({"rate": 0.1}, {"rate": 0.5}),
        "values": np.array([[3.0, 2.0, 1.5], [3.0, 1.0, 0.5]]),
        "vcpus": np.array([1, 2]),
        "step_s": np.array([[10.0, 6.0], [20.0, 20.0]]),
        "step_cov": np.full((2, 2), 0.05),
        "state_bytes": np.array([1000, 2000]),
        "upload_s": np.array([1.0, 2.0]),
        "restore_s": np.array([1.0, 1.0]),
    }
    return RecordedTrials(**fields | changes)


def test_a_step_has_a_serial_and_a_parallel_part() -> None:
    # 10 = a + b, 6 = a + b / 2: a is 2 and b is 8. The second trial gains nothing from vCPUs.
    assert np.allclose(record().seconds_per_step(np.array([1, 2, 4, 8])), [[10, 6, 4, 3], [20, 20, 20, 20]])


def test_steps_that_more_vcpus_lengthen_or_more_than_divide_keep_both_parts_at_least_0() -> None:
    seconds = record(step_s=np.array([[6.0, 8.0], [9.0, 3.0]])).seconds_per_step(np.array([1, 2, 16]))
    assert np.allclose(seconds[0], 7)
    assert np.allclose(seconds[1], [8, 4, 0.5])


def test_one_measured_size_counts_a_tenth_as_serial() -> None:
    one = record(vcpus=np.array([2]), step_s=np.array([[10.0], [20.0]]), step_cov=np.zeros((2, 1)))
    assert np.allclose(one.seconds_per_step(np.array([1, 2, 18])), [[19, 10, 2], [38, 20, 4]])


def test_the_ranking_follows_the_direction_and_ends_with_trials_that_have_no_last_value() -> None:
    values = np.array([[1.0, 2.0], [1.0, 3.0], [9.0, np.nan], [1.0, 2.0]])
    arrays = {"step_s": np.ones((4, 2)), "step_cov": np.zeros((4, 2))}
    rows = {name: np.ones(4) for name in ("state_bytes", "upload_s", "restore_s")}
    settings = ({}, {}, {}, {})
    low = record(values=values, settings=settings, **arrays, **rows)
    high = record(values=values, settings=settings, direction=Direction.MAXIMIZE, **arrays, **rows)
    assert low.ranking().tolist() == [0, 3, 1, 2]
    assert high.ranking().tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": ()}, "for 0 settings"),
        ({"values": np.ones((3, 2))}, r"shape \(3, 2\)"),
        ({"vcpus": np.array([2, 1])}, "rise"),
        ({"step_s": np.zeros((2, 2))}, "above 0"),
        ({"step_s": np.ones((2, 1))}, r"step_s of shape \(2, 1\)"),
        ({"upload_s": np.array([1.0, np.inf])}, "upload_s must be finite"),
        ({"restore_s": np.array([1.0, -1.0])}, "restore_s must be finite"),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(**change)
