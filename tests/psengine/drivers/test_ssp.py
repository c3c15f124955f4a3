from collections.abc import Collection

import pytest

from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Task
from proteus_spot.psengine.drivers.ssp import Ssp


class Recorder:
    """A dispatcher that records."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.sealed: list[int] = []

    def dispatch(self, task: Task) -> None:
        self.tasks.append(task)

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        assert {task.partition for task in self.tasks if task.group == group} == {0, 1, 2}
        self.sealed.append(group)

    def evaluate(self, group: int) -> None: ...

    def finish(self, group: int, reason: str = "") -> None: ...


@pytest.mark.parametrize("staleness", [0, 2])
def test_groups_are_dispatched_up_to_the_bound_and_one_for_each_that_is_committed(staleness: int) -> None:
    recorder = Recorder()
    to: Dispatcher = recorder
    driver: Driver = Ssp(staleness)
    driver.start(to, 3, seed=0)
    assert recorder.sealed == list(range(1, staleness + 2))
    assert {task.read for task in recorder.tasks} == {"parent" if staleness else "group"}
    driver.completed(to, Done(recorder.tasks[0], None, 1, 0.0))
    assert len(recorder.sealed) == staleness + 1
    driver.committed(to, 1)
    assert recorder.sealed[-1] == staleness + 2
    assert driver.next_task(1) == (None if staleness else Task(1, 3))


def test_a_restored_driver_continues_where_the_snapshot_was_taken() -> None:
    first, second = Recorder(), Recorder()
    driver = Ssp(1)
    driver.start(first, 3, seed=0)
    state = driver.snapshot()
    driver.committed(first, 1)
    again = Ssp(1)
    again.restore(state)
    again.committed(second, 1)
    assert second.tasks == first.tasks[-3:]
