"""A job that is held at a clock: nothing beyond it is begun, nothing ends, and a stop overrules it."""

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.protocol.events import (
    BatchDone,
    HoldRequested,
    JobStarted,
    NodeJoined,
    NodeReady,
    ShardsOpened,
    StopRequested,
    TaskStats,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, GatherModel, Instruction

ADDRESS = "tcp://1"


def begun(held: int | None, clocks: int = 5, staleness: int = 0) -> tuple[Controller, list[Instruction]]:
    """A controller of one node and two partitions, held before it was told of its job."""
    controller = Controller()
    controller.handle(HoldRequested(held, 0.0))
    controller.handle(NodeJoined("n", ADDRESS, "reliable", 1, 0.0))
    controller.handle(
        JobStarted(JobConfig("held", n_partitions=2, n_shards=1, clocks=clocks, staleness=staleness), 0.0)
    )
    controller.handle(NodeReady("n", ADDRESS, 1, (0, 1), 0.0))
    return controller, controller.handle(ShardsOpened("n", ADDRESS, (0,), 1, 0.0))


def dispatches(orders: list[Instruction]) -> list[Dispatch]:
    return [order for order in orders if isinstance(order, Dispatch)]


def complete(controller: Controller, orders: list[Instruction], now_s: float) -> list[Instruction]:
    (order,) = dispatches(orders)
    stats = tuple(TaskStats(task.partition, task.attempt, 1.0, 1, 0.5) for task in order.tasks)
    return controller.handle(BatchDone("n", ADDRESS, order.group, stats, now_s))


def test_it_goes_to_the_clock_and_no_further_until_it_is_let_go() -> None:
    controller, orders = begun(2)
    orders = complete(controller, orders, 1.0)
    assert [order.group for order in dispatches(orders)] == [2]
    assert complete(controller, orders, 2.0) == []
    assert controller.job.state == "running"
    assert controller.handle(HoldRequested(1, 2.5)) == []
    assert [order.group for order in dispatches(controller.handle(HoldRequested(None, 3.0)))] == [3]


def test_held_before_the_first_clock_nothing_runs() -> None:
    controller, orders = begun(0)
    assert dispatches(orders) == []
    assert [order.group for order in dispatches(controller.handle(HoldRequested(1, 1.0)))] == [1]


def test_stale_clocks_are_held_too() -> None:
    controller, orders = begun(1, staleness=3)
    assert [order.group for order in dispatches(orders)] == [1]
    assert complete(controller, orders, 1.0) == []


def test_a_hold_beyond_the_last_clock_changes_nothing() -> None:
    controller, orders = begun(9, clocks=1)
    (end,) = complete(controller, orders, 1.0)
    assert isinstance(end, GatherModel)


def test_a_stop_overrules_it() -> None:
    controller, orders = begun(1)
    complete(controller, orders, 1.0)
    (end,) = controller.handle(StopRequested("enough", 2.0))
    assert isinstance(end, GatherModel)
    assert end.committed == 1


def test_seconds_and_stage_of_each_clock_are_in_the_result() -> None:
    controller, orders = begun(None, clocks=2)
    orders = complete(controller, orders, 1.0)
    (end,) = complete(controller, orders, 3.0)
    assert isinstance(end, GatherModel)
    assert end.summary["seconds_by_clock"] == [1.0, 2.0]
    assert end.summary["stage_by_clock"] == [1, 1]
