"""What is dispatched together."""

from proteus_spot.psengine.drivers.interface import Dispatcher, Task
from proteus_spot.psengine.drivers.rotation import Rotation
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.membership.node_record import NodeRecord, NodeState
from proteus_spot.psengine.membership.placement import Placement
from proteus_spot.psengine.protocol.events import BatchFailed
from proteus_spot.psengine.protocol.instructions import Dispatch
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from tests.support.task_tables import complete, driven_table, ssp_table


def orders(
    dispatcher: BatchDispatcher, owner: str, state: NodeState = "leaving", limit: int | None = None, names: str = "ab"
) -> list[tuple[str, int, list[int]]]:
    """Leaving nodes are about to end here: they are sent nothing before what they run is completed."""
    ending = "ab" if state == "leaving" else ""
    nodes = {name: NodeRecord(name, f"tcp://{name}", "reliable", 1, state=state) for name in names}
    found: list[Dispatch] = dispatcher.orders(Placement(tuple(owner), (None,) * len(owner)), nodes, limit, 1, 1, ending)
    return [(order.node, order.group, [task.partition for task in order.tasks]) for order in found]


def test_a_partition_that_has_fallen_behind_is_soon_in_step_with_its_node_s_others() -> None:
    tasks, host = ssp_table(3, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "aab") == [("a", 1, [0, 1]), ("b", 1, [2])]
    complete(tasks, host, [0, 1])
    assert orders(dispatcher, "aab") == [("a", 2, [0, 1])]
    complete(tasks, host, [2])
    assert orders(dispatcher, "aaa") == [("a", 2, [2])], "a has the partition now, and runs the others"
    complete(tasks, host, [0, 1])
    assert orders(dispatcher, "aaa") == [], "2 is behind"
    complete(tasks, host, [2])
    assert orders(dispatcher, "aaa") == [("a", 3, [0, 1, 2])]


def test_who_takes_over_as_much_as_it_had_waits_for_all_of_it() -> None:
    """A second batch for the rest would take another push and another read."""
    tasks, host = ssp_table(8, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "aaabbbbb")) == 2
    complete(tasks, host, [0, 1, 2, 3, 4])
    assert orders(dispatcher, "aaaaaabb") == [], "a sixth is to come"
    complete(tasks, host, [5])
    assert orders(dispatcher, "aaaaaabb") == [("a", 2, [0, 1, 2, 3, 4, 5])]


def test_who_takes_over_little_begins_with_what_there_is() -> None:
    tasks, host = ssp_table(8, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "aaaabbbb")) == 2
    complete(tasks, host, [0, 1, 2, 3])
    assert orders(dispatcher, "aaaaabbb") == [("a", 2, [0, 1, 2, 3])]


def test_a_batch_to_catch_up_says_nothing_of_how_much_a_node_has() -> None:
    tasks, host = ssp_table(8, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "aaaabbbb")) == 2
    complete(tasks, host, [0, 1, 2, 3, 4])
    assert orders(dispatcher, "aaaabbbb") == [("a", 2, [0, 1, 2, 3])]
    complete(tasks, host, [0, 1, 2, 3])
    assert orders(dispatcher, "aaaaabbb") == [("a", 2, [4])], "it has fallen behind"
    complete(tasks, host, [5, 6, 7])
    assert orders(dispatcher, "aaaaabbb") == [("b", 2, [5, 6, 7])]
    complete(tasks, host, [4])
    assert orders(dispatcher, "aaaaaabb") == [("a", 3, [0, 1, 2, 3, 4])], "of five, one is to come"


def test_what_is_in_pieces_waits_for_those_who_are_nearly_done() -> None:
    """Of partitions 0, 2, 5 a node would have three sums to send, and then two others."""
    tasks, host = ssp_table(8, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "ababbabb")) == 2
    complete(tasks, host, [0, 2, 5])
    assert orders(dispatcher, "aaaababb") == [], "with 1 and 3 as well they are two"
    complete(tasks, host, [1, 3])
    assert orders(dispatcher, "aaaababb") == [("a", 2, [0, 1, 2, 3, 5])]


def test_what_is_in_pieces_is_begun_when_nobody_is_about_to_be_done_with_the_rest() -> None:
    tasks, host = ssp_table(8, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "abababab")) == 2
    complete(tasks, host, [0, 2, 4, 6])
    assert orders(dispatcher, "abababab") == [("a", 2, [0, 2, 4, 6])], "it has no others"


def test_bulk_synchronous_a_busy_node_is_sent_at_once_what_another_one_has_left() -> None:
    tasks, host = ssp_table(2, staleness=0)
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "ab") == [("a", 1, [0]), ("b", 1, [1])]
    assert tasks.give_up("b") == [1]
    assert orders(dispatcher, "aa") == [("a", 1, [1])]


class Single(Ssp):
    """One partition a group, several groups ahead."""

    def resume(self, to: Dispatcher, partitions: int, group: int) -> None:
        for partition in range(partitions):
            to.dispatch(Task(partition, group + partition + 1, read="parent"))
            to.seal(group + partition + 1)


def test_a_node_has_several_batches_in_flight_where_groups_have_few_executors() -> None:
    """While one of them reads or pushes, another one runs: two tasks for each core."""
    tasks, host = driven_table(4, Single())
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "aaab") == [("a", 1, [0]), ("a", 2, [1]), ("b", 4, [3])]
    assert orders(dispatcher, "aaab") == []
    assert tasks.complete(1, 2, 1)
    assert orders(dispatcher, "aaab") == [("a", 3, [2])]


def test_the_next_clock_of_all_that_a_node_runs_follows_before_it_is_completed() -> None:
    tasks, host = ssp_table(4, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "aabb", "ready", limit=1) == [("a", 1, [0, 1]), ("b", 1, [2, 3])]
    assert orders(dispatcher, "aabb", "ready") == [("a", 2, [0, 1]), ("b", 2, [2, 3])]
    assert orders(dispatcher, "aabb", "ready") == []
    complete(tasks, host, [0, 1])
    assert orders(dispatcher, "aabb", "ready") == [], "clock 3 waits for clock 1"
    complete(tasks, host, [2])
    assert orders(dispatcher, "aaab", "ready") == [], "2 is on its way from b to a, and is at clock 2 there"
    complete(tasks, host, [3])
    assert orders(dispatcher, "aaab", "ready") == [("b", 3, [3])], "2 is a's by now, and a is to run all of it together"
    complete(tasks, host, [2])
    assert orders(dispatcher, "aaab", "ready") == [("a", 3, [0, 1, 2])], "0 and 1 follow, and 2 is completed"
    assert set(tasks.following) == {0, 1, 3}
    complete(tasks, host, [0, 1])
    assert orders(dispatcher, "aaab", "ready") == []
    complete(tasks, host, [3])
    assert orders(dispatcher, "aaab", "ready") == [("a", 4, [0, 1, 2]), ("b", 4, [3])]


def test_what_leaving_nodes_complete_comes_in_a_batch_of_its_own_and_is_then_in_step() -> None:
    tasks, host = ssp_table(6, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "aabbbb", "ready", limit=1) == [("a", 1, [0, 1]), ("b", 1, [2, 3, 4, 5])]
    before, after = (Placement(tuple(owner), (None,) * 6) for owner in ("aabbbb", "aaaaaa"))
    assert orders(dispatcher, "aaaaaa", "ready", names="a") == [("a", 2, [0, 1])], "b has received a notice"
    assert dispatcher.recalls(before, "ab") == {}
    assert dispatcher.recalls(after, "a") == {}, "a runs what it has until b has ended"
    assert orders(dispatcher, "aaaaaa", "ready", names="a") == []
    complete(tasks, host, [0, 1])
    assert orders(dispatcher, "aaaaaa", "ready", names="a") == []
    complete(tasks, host, [2, 3, 4])
    assert orders(dispatcher, "aaaaaa", "ready", names="a") == [], "5 is to come"
    complete(tasks, host, [0, 1])
    assert orders(dispatcher, "aaaaaa", "ready", names="a") == [], "5 is to come"
    complete(tasks, host, [5])
    assert orders(dispatcher, "aaaaaa", "ready", names="a") == [("a", 2, [2, 3, 4, 5]), ("a", 3, list(range(6)))]
    assert set(tasks.following) == {2, 3, 4, 5}, "0 and 1 have completed clock 2"
    assert dispatcher.recalls(before, "ab") == {"a": 3}, "as it would be with a node that joins"
    assert dispatcher.failed(
        BatchFailed("a", "tcp://a", 3, tuple((e, 1) for e in range(6)), "", False, 0.0, recalled=True)
    )
    complete(tasks, host, [2, 3, 4, 5])
    assert orders(dispatcher, "aaaaaa", "ready", limit=3, names="a") == [("a", 3, list(range(6)))]


def test_what_a_lost_node_ran_is_done_again_before_the_next_clock() -> None:
    tasks, host = ssp_table(4, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "aabb", "ready")) == 4
    assert tasks.give_up("b") == [2, 3]
    assert dispatcher.recalls(Placement(tuple("aaaa"), (None,) * 4), "a") == {"a": 2}


def test_what_follows_is_recalled_when_the_partitions_of_its_node_change() -> None:
    tasks, host = ssp_table(4, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    assert len(orders(dispatcher, "aabb", "ready")) == 4
    before, after = (Placement(tuple(owner), (None,) * 4) for owner in ("aabb", "aaab"))
    assert dispatcher.recalls(before, "ab") == {}
    assert dispatcher.recalls(Placement(tuple("aaaa"), (None,) * 4), "ab", "b") == {"a": 2}, "b has time for it"
    assert dispatcher.recalls(after, "ab") == {"a": 2, "b": 2}, "a is to run all of it together"
    assert dispatcher.recalls(after, "ab") == {}, "once"
    for node, partitions in (("a", (0, 1)), ("b", (2, 3))):
        recalled = tuple((partition, 1) for partition in partitions)
        assert dispatcher.failed(BatchFailed(node, f"tcp://{node}", 2, recalled, "", False, 0.0, recalled=True))
    assert orders(dispatcher, "aaab", "ready") == [("b", 2, [3])], "what stays with b is sent early again, by itself"
    assert dispatcher.recalls(Placement(tuple("aaab"), (None,) * 4), "ab") == {}
    complete(tasks, host, [0, 1, 2, 3])
    assert orders(dispatcher, "aaab", "ready")[:1] == [("a", 2, [0, 1, 2])]
    assert tasks.repeated == 0, "none of them had begun"


def test_a_task_that_reads_a_committed_group_follows_none() -> None:
    tasks, host = driven_table(4, Ssp(0))
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "aabb", "ready") == [("a", 1, [0, 1]), ("b", 1, [2, 3])]
    assert orders(dispatcher, "aabb", "ready") == []


def test_a_task_that_reads_rows_follows_once_their_writers_are_sent() -> None:
    tasks, host = driven_table(4, Rotation())
    dispatcher = BatchDispatcher(tasks, host)
    assert orders(dispatcher, "aacc", "ready") == [("a", 1, [0, 1])], "partition 1 reads what 2 writes"
    assert orders(dispatcher, "aabb", "ready") == [("b", 1, [2, 3]), ("a", 2, [0, 1]), ("b", 2, [2, 3])]
    assert [tasks.following[e].task.read for e in range(4)] == ["rows"] * 4
    assert orders(dispatcher, "aabb", "ready") == []


def test_a_batch_that_follows_names_what_writes_its_rows() -> None:
    tasks, host = driven_table(4, Rotation())
    dispatcher = BatchDispatcher(tasks, host)
    nodes = {name: NodeRecord(name, f"tcp://{name}", "reliable", 1, state="ready") for name in "ab"}
    batches = dispatcher.orders(Placement(tuple("aabb"), (None,) * 4), nodes, None, 1, 1)
    assert [task.written_by for batch in batches for task in batch.tasks] == [
        *[None] * 4,
        *((1, partition) for partition in (1, 2, 3, 0)),
    ]
    followers = [task for batch in batches[2:] for task in batch.tasks]
    assert all(task.after == (task.written_by, (1, task.partition)) for task in followers), "its own update counts, too"


def test_a_batch_that_follows_names_the_task_whose_state_it_begins_with() -> None:
    tasks, host = ssp_table(2, staleness=1)
    dispatcher = BatchDispatcher(tasks, host)
    nodes = {"a": NodeRecord("a", "tcp://a", "reliable", 1, state="ready")}
    first, second = dispatcher.orders(Placement(("a", "a"), (None, None)), nodes, None, 1, 1)
    assert [task.follows for task in first.tasks] == [None, None]
    assert [task.follows for task in second.tasks] == [(1, 1), (1, 1)]
