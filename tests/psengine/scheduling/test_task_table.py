"""The table of tasks: what may run, which attempt counts, what is committed."""

import pytest

from proteus_spot.psengine.drivers.interface import Task
from proteus_spot.psengine.scheduling.task_table import TaskTable, lost_updates
from tests.support.task_tables import complete, ssp_table


def ready(table: TaskTable, limit: int | None = None) -> list[tuple[int, int]]:
    return [(task.partition, task.group) for task, _ in table.ready(limit)]


def sealed(table: TaskTable, partitions: tuple[int, ...], read: str = "group") -> None:
    """Dispatch a task to each of these partitions in the open group, and seal it."""
    group = table.sealed + 1
    for partition in partitions:
        table.enqueue(Task(partition, group, read=read))  # type: ignore[arg-type]
    table.seal(group)


def done(table: TaskTable, partition: int, node: str = "n") -> None:
    key = table.start(partition, node)
    assert table.complete(partition, table.running[partition].group, key.attempt)


def test_ssp_is_bulk_synchronous_without_staleness_and_bounded_with() -> None:
    table, host = ssp_table(3)
    assert ready(table) == [(0, 1), (1, 1), (2, 1)]
    for partition in (0, 1, 2):
        table.start(partition, "n")
    complete(table, host, [0, 1])
    assert ready(table) == []
    complete(table, host, [2])
    assert ready(table) == [(0, 2), (1, 2), (2, 2)]
    assert ready(table, limit=1) == []
    stale, host = ssp_table(2, staleness=2)
    for _ in range(3):
        stale.start(0, "n")
        complete(stale, host, [0])
    assert ready(stale) == [(1, 1)]
    assert (stale.common, stale.completions, stale.n_updates) == (0, 3, 0)


def test_only_the_latest_attempt_completes() -> None:
    table, _host = ssp_table(2, staleness=1)
    assert table.start(0, "a").attempt == 1
    assert table.give_up("a") == [0]
    assert not table.complete(0, 1, 1)  # given up: it is done again
    assert table.start(0, "b").attempt == 2
    assert not table.complete(0, 1, 1)
    assert table.complete(0, 1, 2)
    assert not table.complete(0, 1, 2)
    assert (table.repeated, table.completions, table.ignored, table.common) == (1, 1, 3, 0)
    assert table.start(0, "b").attempt == 1


def test_the_attempt_of_a_group_is_known_if_it_is_one_and_all_have_it() -> None:
    table, host = ssp_table(2, staleness=1)
    assert table.completed_by == 0  # who wrote the beginning is not known

    def do(partition: int, tries: int = 1) -> None:
        for _ in range(tries):
            table.give_up("n")
            table.start(partition, "n")
        complete(table, host, [partition])

    do(0)
    assert table.completed_by == 0
    do(1)
    assert table.completed_by == 1
    do(0, tries=2)
    do(1)
    assert table.completed_by == 0
    do(0)
    do(1)
    assert table.completed_by == 1
    do(0)
    assert table.completed_by == 0, "one has gone further, and its last attempt was at another clock"
    host.roll_back(2)
    do(0)
    do(1)
    assert table.completed_by == 3


def test_a_group_of_some_executors_is_committed_when_they_are_done() -> None:
    table = TaskTable(3)
    sealed(table, (0, 2))
    sealed(table, (1,))
    assert ready(table) == [(0, 1), (2, 1)], "a task that reads the group before waits for it"
    done(table, 0)
    assert not table.commit_next()
    done(table, 2)
    assert table.commit_next()
    assert (table.common, table.n_updates, table.completed_by) == (1, 2, 0)
    assert ready(table) == [(1, 2)]


def test_tasks_that_read_what_is_there_wait_for_no_group() -> None:
    table = TaskTable(3)
    sealed(table, (0, 2))
    sealed(table, (1,), read="parent")
    assert ready(table) == [(0, 1), (1, 2), (2, 1)]
    done(table, 1)
    assert (table.last_begun, table.common) == (2, 0)
    assert not table.commit_next(), "groups are committed in order"


def test_a_withdrawn_task_that_was_sent_is_replaced_and_one_that_was_not_is_dropped() -> None:
    table = TaskTable(3)
    sealed(table, (0, 1, 2))
    table.start(0, "lost")
    done(table, 2)
    table.give_up("lost")
    table.withdraw(0)
    table.withdraw(1)
    ((task, withdrawn),) = table.ready(None)
    assert (task.partition, withdrawn) == (0, True)
    key = table.start(0, "n")
    assert (key.attempt, key.withdrawn) == (2, True), "it takes the place of what the lost node may have sent"
    running = table.complete(0, 1, 2)
    assert running is not None
    assert running.withdrawn
    assert table.commit_next()
    assert table.n_updates == 2, "partition 1 left no effect"


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (Task(3, 1), "there is no partition 3: they are 0 to 2"),
        (Task(0, 1), "partition 0 has two tasks in group 1"),
        (Task(1, 2), "a task of group 2 was dispatched: group 1 is open"),
    ],
)
def test_what_a_driver_must_not_dispatch(task: Task, line: str) -> None:
    table = TaskTable(3)
    table.enqueue(Task(0, 1))
    with pytest.raises(ValueError, match=line):
        table.enqueue(task)


def test_what_a_driver_must_not_seal() -> None:
    table = TaskTable(3)
    table.enqueue(Task(0, 1))
    table.enqueue(Task(1, 1))
    done(table, 0)
    for group, members, line in [
        (2, None, "group 1 is open"),
        (1, (0, 2), "no task in it"),
    ]:
        with pytest.raises(ValueError, match=line):
            table.seal(group, members)
    assert table.seal(1, (0,)) == 1
    assert table.commit_next()


def test_a_task_that_is_completed_when_its_group_is_sealed_without_it_is_withdrawn_under_a_higher_attempt() -> None:
    table = TaskTable(3)
    for partition in range(3):
        table.enqueue(Task(partition, 1))
    first = {partition: table.start(partition, "n").attempt for partition in range(3)}
    for partition in range(3):
        assert table.complete(partition, 1, first[partition]) is not None
        table.states.completed(partition, 1, first[partition], "n")
    assert table.seal(1, (0, 2)) == 3
    assert table.is_withdrawn(Task(1, 1))
    assert not table.is_withdrawn(Task(0, 1))
    assert not table.commit_next(), "the update is on the servers"
    assert [(task.partition, withdrawn) for task, withdrawn in table.ready(None)] == [(1, True)]
    key = table.start(1, "n")
    assert (key.withdrawn, key.attempt, key.state) == (True, first[1] + 1, None)
    assert table.complete(1, 1, key.attempt) is not None
    assert table.commit_next()
    assert [table.states.current(partition) is None for partition in range(3)] == [False, True, False]
    assert table.states.held_at("n") == 2


def test_lost_updates_are_counted_on_the_worst_shard() -> None:
    assert lost_updates((12, 11, 12), 12) == 1
    assert lost_updates((12, 12), 12) == 0


def test_a_task_that_names_writers_is_sent_when_they_were_and_not_before() -> None:
    table = TaskTable(3)
    for group in (1, 2):
        for partition in range(3):
            table.enqueue(Task(partition, group, read="rows", after=((partition + 1) % 3,)))
        table.seal(group)
    done(table, 0)
    assert ready(table) == [(1, 1), (2, 1)], "partition 1, which wrote its rows last, has not begun"
    table.start(1, "n")
    assert ready(table) == [(0, 2), (2, 1)], "group 1 is not committed"
    assert table.start(0, "m").after == ((1, 1),)
    with pytest.raises(ValueError, match="partition 1 cannot be withdrawn from group 1"):
        table.withdraw(1)
    table.give_up("n")
    with pytest.raises(ValueError, match="partition 1 cannot be withdrawn from group 1"):
        table.withdraw(1)
    done(table, 1)
    done(table, 2)
    assert table.commit_next()
    assert table.start(1, "n").after == (), "what partition 2 wrote is committed"


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (Task(0, 2, read="group", after=(1,)), "a task that reads 'group' has `after`"),
        (Task(0, 2, read="rows", after=(3,)), "`after` names partition 3: they are 0 to 1"),
        (Task(0, 2, read="rows", after=(1,)), "`after` names partition 1, whose task reads 'parent'"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(task: Task, line: str) -> None:
    table = TaskTable(2)
    sealed(table, (1,), "parent")
    with pytest.raises(ValueError, match=line):
        table.enqueue(task)


def test_a_task_that_follows_another_one_is_completed_after_it_and_goes_back_with_it() -> None:
    table, _host = ssp_table(2, staleness=1)
    first = [table.start(partition, "a") for partition in (0, 1)]
    assert [task.partition for task in table.may_follow(1)] == []
    assert [(task.partition, task.group) for task in table.may_follow(None)] == [(0, 2), (1, 2)]
    second = [table.start(partition, "a") for partition in (0, 1)]
    assert [key.follows for key in (*first, *second)] == [None, None, (1, 1), (1, 1)]
    assert table.may_follow(None) == []
    assert (table.running_on("a"), table.begun(0), table.completed(0)) == (4, 2, 0)
    assert table.complete(0, 2, 1) is None, "the one before is not completed"
    assert table.complete(0, 1, 1)
    assert table.running[0].group == 2
    assert table.forget(1, 1, 1), "its task failed"
    assert ready(table) == [(0, 2), (1, 1)], "what follows it, and all that was summed up with that, goes back"
    assert table.running_on("a") == 0
    assert [table.start(partition, "b").attempt for partition in (0, 1)] == [2, 2]
    assert table.start(1, "b").attempt == 2


def test_a_batch_that_follows_two_goes_back_with_either() -> None:
    """Node a sends one sum of group 3, whose tasks follow those of groups 1 and 2."""
    table = TaskTable(2)
    sealed(table, (0,), "parent")
    sealed(table, (1,), "parent")
    sealed(table, (0, 1), "parent")
    for partition in (0, 1, 0, 1):
        table.start(partition, "a")
    assert table.forget(0, 1, 1)
    assert ready(table) == [(0, 1)]
    assert (table.running_on("a"), table.following) == (1, {})


def test_tasks_that_follow_others_come_back_alone() -> None:
    table, _host = ssp_table(2, staleness=1)
    for _ in range(2):
        for partition in (0, 1):
            table.start(partition, "a")
    assert table.complete(0, 1, 1)
    assert [table.forget(partition, 2, 1) for partition in (0, 1)] == [True, True]
    assert (table.running_on("a"), [running.group for running in table.running.values()]) == (1, [1])
    assert ready(table) == [(0, 2)]
    assert [task.partition for task in table.may_follow(None)] == [1]
    assert table.start(0, "b").attempt == 2
    assert table.complete(0, 2, 1) is None
    table.give_up("a")
    assert ready(table) == [(1, 1)]


def test_what_follows_a_withdrawn_task_goes_back_too() -> None:
    table, _host = ssp_table(2, staleness=1)
    for _ in range(2):
        for partition in (0, 1):
            table.start(partition, "a")
    table.withdraw(1, 2)
    assert sorted(table.running) == [0, 1]
    assert table.following == {}, "the sum that node a sends of group 2 has the update of partition 1"
    assert table.complete(1, 1, 1)
    assert [(task.group, withdrawn) for task, withdrawn in table.ready(None) if task.partition == 1] == [(2, True)]
