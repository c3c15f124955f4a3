"""How far a job goes: target, end and hold, whichever is the nearest; and an end is not held up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psengine.config import JobConfig
from psengine.protocol.events import BatchFailed, HoldRequested, StopRequested, TimerFired
from psengine.protocol.instructions import Dispatch
from psengine.scheduling.stopping import StoppingRule
from tests.support.controller import done, started

CLOCKS = st.none() | st.integers(0, 9)


@given(CLOCKS, CLOCKS, CLOCKS)
def test_the_nearest_one_counts(target: int | None, end: int | None, held: int | None) -> None:
    limits = StoppingRule()
    limits.pause_at(held)
    limits.target = target
    if end is not None:
        limits.end_at(end)
    last = min((clock for clock in (target, end) if clock is not None), default=None)
    assert limits.last_clock == last
    assert limits.ending == (end is not None)
    held = held if end is None else None
    assert limits.limit == min((clock for clock in (last, held) if clock is not None), default=None)


def test_a_hold_is_lifted() -> None:
    limits = StoppingRule()
    limits.pause_at(3)
    assert limits.limit == 3
    limits.pause_at(None)
    assert limits.limit is None


@pytest.mark.parametrize("stopped", [True, False])
def test_a_stop_finishes_the_clock_under_way_also_beyond_where_the_job_is_held(stopped: bool) -> None:
    controller, dispatch = started(JobConfig("held", n_partitions=2, n_shards=1, clocks=9))
    (second,) = controller.handle(done(dispatch, 1.0))
    assert isinstance(second, Dispatch)
    controller.handle(HoldRequested(1, 1.1))
    if stopped:
        controller.handle(StopRequested("enough", 1.2))
    tasks = tuple((task.partition, task.attempt) for task in second.tasks)
    controller.handle(BatchFailed("r", "tcp://r", 2, tasks, "server away", False, 1.3))
    again = [order for order in controller.handle(TimerFired(1.5)) if isinstance(order, Dispatch)]
    assert [order.clock for order in again] == ([2] if stopped else [])
