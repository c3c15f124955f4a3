"""Events that follow each other closely are one batch, and none waits for too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.membership.event_batch import EventBatch

#: Steps of a quarter of a second, so that sums of them are exact.
STEP_S = 0.25
#: (steps since the last call, number of events or 0 for a poll, steps that they wait at most).
CALLS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 30)), max_size=40)


@given(CALLS, st.integers(1, 6), st.integers(1, 20))
def test_a_batch_is_due_when_no_further_event_is_waited_for(
    calls: list[tuple[int, int, int]], apart: int, together: int
) -> None:
    batch = EventBatch(apart * STEP_S, together * STEP_S)
    step, waiting = 0, list[tuple[int, int, int]]()  # (step, number, step until which it waits)
    for passed, count, wait in calls:
        step += passed
        if count:
            batch.add(step * STEP_S, count, wait * STEP_S)
            waiting.append((step, count, step + wait))
        else:
            quiet = bool(waiting) and step - waiting[-1][0] >= apart
            overdue = any(step >= until or step - added >= together for added, _, until in waiting)
            assert batch.take(step * STEP_S) == (quiet or overdue)
            waiting = [] if quiet or overdue else waiting
        assert batch.size == sum(count for _, count, _ in waiting)


def test_the_event_with_the_least_time_decides_and_an_empty_batch_is_never_due() -> None:
    batch = EventBatch(together_s=5.0)
    assert not batch.take(1e9)
    batch.add(10.0, wait_s=6.0)
    batch.add(11.0, wait_s=1.0)
    batch.add(11.5, wait_s=15.0)
    assert (batch.take(11.9), batch.size) == (False, 3)
    assert (batch.take(12.0), batch.size) == (True, 0)
    assert not batch.take(13.0), "once"
