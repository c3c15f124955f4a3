"""A controller of one job in the initial state of a test, without real nodes."""

from collections.abc import Callable

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.state import default_driver
from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.protocol.events import BatchDone, JobStarted, NodeJoined, NodeReady, ShardsOpened, TaskStats
from proteus_spot.psengine.protocol.instructions import Dispatch, GatherModel, Instruction, LoadPartitions, TakeShards


def started(
    config: JobConfig, make_driver: Callable[[JobConfig], Driver] = default_driver
) -> tuple[Controller, Dispatch]:
    """Return a controller with one reliable node that holds everything and was given the first clock."""
    controller, (dispatch,) = started_early(config, make_driver)
    return controller, dispatch


def started_early(
    config: JobConfig, make_driver: Callable[[JobConfig], Driver] = default_driver
) -> tuple[Controller, list[Dispatch]]:
    """Return what `started` does; with stale reads the node was given the next clock, too."""
    controller = Controller(make_driver)
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(config, 0.0))
    controller.handle(NodeReady("r", "tcp://r", 1, tuple(range(config.n_partitions)), 0.0))
    orders = controller.handle(ShardsOpened("r", "tcp://r", tuple(range(config.n_shards)), 1, 0.0))
    return controller, [o for o in orders if isinstance(o, Dispatch)]


def done(dispatch: Dispatch, now_s: float) -> BatchDone:
    """Return the report of a batch, all of which was done."""
    stats = tuple(TaskStats(t.partition, t.attempt, 1.0, 1, 0.0) for t in dispatch.tasks)
    return BatchDone(dispatch.node, dispatch.address, dispatch.group, stats, now_s)


def gathering(now_s: float = 2.0) -> tuple[Controller, GatherModel]:
    """Return a controller whose last clock was completed at `now_s`, and its order to gather the model."""
    controller, dispatch = started(JobConfig("save", n_partitions=2, n_shards=1, clocks=1))
    (gather,) = controller.handle(done(dispatch, now_s))
    assert isinstance(gather, GatherModel)
    return controller, gather


def some_at_work(*names: str, n_partitions: int = 8, staleness: int = 0) -> tuple[Controller, list[Dispatch]]:
    """Return a controller with nodes that serve a shard each, and the orders of their first clock."""
    controller, orders = Controller(), list[Instruction]()
    for name in names:
        controller.handle(NodeJoined(name, f"tcp://{name}", "reliable", 1, 0.0))
    job = JobConfig(
        "moved",
        n_partitions=n_partitions,
        n_shards=len(names),
        clocks=99,
        n_reliable=len(names),
        staleness=staleness,
    )
    for load in controller.handle(JobStarted(job, 0.0)):
        assert isinstance(load, LoadPartitions)
        controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 0.0))
    for name, shard in zip(names, range(len(names)), strict=True):
        orders = controller.handle(ShardsOpened(name, f"tcp://{name}", (shard,), 1, 0.0))
    return controller, [order for order in orders if isinstance(order, Dispatch)]


def takes(orders: list[Instruction]) -> list[tuple[str, int]]:
    """Return the nodes that take over shards, each with the clocks that are common."""
    return [(order.node, order.committed) for order in orders if isinstance(order, TakeShards)]
