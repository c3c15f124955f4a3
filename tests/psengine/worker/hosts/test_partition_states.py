"""The states of partitions that a node has: which are kept, and for how long."""

from __future__ import annotations

import numpy as np

from proteus_spot.psengine.protocol.moved_state import PartitionState
from proteus_spot.psengine.worker.hosts.partition_states import PartitionStates


def state(partition: int, group: int, attempt: int = 1) -> PartitionState:
    return PartitionState(partition, group, attempt, {"a": np.array([partition, group, attempt])})


def test_a_state_is_that_of_its_attempt_alone() -> None:
    states = PartitionStates()
    states.put(state(0, 1, 2))
    found = states.find(0, 1, 2)
    assert found is not None
    assert found.arrays["a"].tolist() == [0, 1, 2]
    assert states.find(0, 1, 1) is None
    assert states.find(1, 1, 2) is None


def test_states_before_the_committed_group_go_but_the_last_of_each_executor_and_the_marked_ones() -> None:
    states = PartitionStates()
    states.mark_every = 2
    for group in range(1, 8):
        states.put(state(0, group))
    states.put(state(1, 3))
    states.drop_before(6)
    assert [group for group in range(1, 9) if states.find(0, group, 1)] == [4, 6, 7]
    assert states.find(1, 3, 1) is not None, "its partition has had no task since"
    assert len(states) == 4


def test_replicas_are_of_the_last_whole_round_and_of_the_one_under_way() -> None:
    states = PartitionStates()
    for number, group in ((1, 5), (2, 8), (3, 9)):
        last_complete = 1 if number == 3 else number - 1  # the second round failed
        states.replicate(number, last_complete, [state(4, group)])
    states.drop_before(100)
    assert len(states) == 0
    assert [group for group in (5, 8, 9) if states.find(4, group, 1)] == [5, 9]
