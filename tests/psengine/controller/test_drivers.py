"""A job with a driver of its own: its errors, its end, and what it asks for."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Task
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.events import (
    BatchDone,
    Evaluated,
    HoldRequested,
    JobStarted,
    ModelSaved,
    NodeJoined,
    NodeReady,
    NodesLost,
    ShardsOpened,
    TaskStats,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, Evaluate, GatherModel, Instruction

CONFIG = JobConfig("driven", app="mine:App", n_partitions=3, n_shards=1, clocks=9)


class Alternating(Driver):
    """Partition 0 and partitions 1 and 2 in turns; `then` is called when a group is committed."""

    def __init__(self, then: Callable[[Dispatcher, int], None] = lambda to, group: None) -> None:
        self.then = then
        self.results: list[Any] = []

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        self.dispatch(to, 1)

    def dispatch(self, to: Dispatcher, group: int) -> None:
        for partition in (0,) if group % 2 else (1, 2):
            to.dispatch(Task(partition, group, args={"group": group}))
        to.seal(group)

    def completed(self, to: Dispatcher, done: Done) -> None:
        self.results.append((done.task.group, done.task.partition, done.result))

    def committed(self, to: Dispatcher, group: int) -> None:
        self.then(to, group)
        self.dispatch(to, group + 1)

    def snapshot(self) -> Any:
        return list(self.results)

    def restore(self, state: Any) -> None:
        self.results = list(state)


def begun(driver: Driver, config: JobConfig = CONFIG) -> tuple[Controller, list[Instruction]]:
    controller = Controller(lambda config: driver)
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(config, 0.0))
    controller.handle(NodeReady("r", "tcp://r", 1, (0, 1, 2), 0.0))
    return controller, controller.handle(ShardsOpened("r", "tcp://r", (0,), 1, 0.0))


def answer(controller: Controller, orders: list[Instruction], now_s: float) -> list[Instruction]:
    (order,) = (order for order in orders if isinstance(order, Dispatch))
    stats = tuple(
        TaskStats(t.partition, t.attempt, 1.0, 1, 0.0, t.args["group"] * 10 + t.partition) for t in order.tasks
    )
    return controller.handle(BatchDone("r", "tcp://r", order.group, stats, now_s))


def test_arguments_go_out_results_come_back_and_groups_have_some_executors() -> None:
    driver = Alternating()
    controller, orders = begun(driver)
    sent = []
    for clock in range(1, 5):
        (order,) = (order for order in orders if isinstance(order, Dispatch))
        sent.append((order.group, [task.partition for task in order.tasks], order.tasks[0].args, order.completions))
        orders = answer(controller, orders, 1.0 * clock)
    assert sent == [
        (1, [0], {"group": 1}, 0),
        (2, [1, 2], {"group": 2}, 1),
        (3, [0], {"group": 3}, 3),
        (4, [1, 2], {"group": 4}, 4),
    ]
    assert driver.results == [(1, 0, 10), (2, 1, 21), (2, 2, 22), (3, 0, 30), (4, 1, 41), (4, 2, 42)]
    assert [clock for clock, _ in controller.job.progress.losses] == [1, 2, 3, 4]


def test_it_ends_the_job_with_the_model_of_a_group() -> None:
    controller, orders = begun(Alternating(lambda to, group: to.finish(3, "good enough") if group == 2 else None))
    orders = answer(controller, answer(controller, orders, 1.0), 2.0)
    (gather,) = answer(controller, orders, 3.0)
    assert isinstance(gather, GatherModel)
    assert (gather.committed, gather.n_updates) == (3, 4)
    controller.handle(ModelSaved({"stopped": None}, 4.0))
    assert (controller.job.state, controller.job.reason) == ("finished", "good enough")


def test_it_has_a_group_evaluated() -> None:
    controller, orders = begun(Alternating(lambda to, group: to.evaluate(2) if group == 1 else None))
    orders = answer(controller, orders, 1.0)
    evaluations = [order for order in answer(controller, orders, 2.0) if isinstance(order, Evaluate)]
    assert [evaluation.group for evaluation in evaluations] == [2]


def fails(to: Dispatcher, group: int) -> None:
    raise KeyError("weights")


def cancels(to: Dispatcher, group: int) -> None:
    raise asyncio.CancelledError("enough")


@pytest.mark.parametrize(
    ("then", "line"),
    [
        (cancels, "RuntimeError: CancelledError: enough"),
        (fails, "KeyError: 'weights'"),
        (lambda to, group: to.dispatch(Task(7, 2)), "ValueError: there is no partition 7: they are 0 to 2"),
        (lambda to, group: to.dispatch(Task(0, 5)), "ValueError: a task of group 5 was dispatched: group 2 is open"),
        (lambda to, group: to.seal(2), "ValueError: group 2 was sealed without tasks"),
        (lambda to, group: to.evaluate(1), "ValueError: group 1 is committed already: it cannot be evaluated any more"),
    ],
)
def test_what_it_raises_and_what_it_must_not_do_fails_the_job_with_a_line(
    then: Callable[[Dispatcher, int], None], line: str
) -> None:
    controller, orders = begun(Alternating(then))
    assert answer(controller, orders, 1.0) == []
    assert (controller.job.state, controller.job.reason) == ("failed", f"the driver failed: {line}")


def test_one_that_cannot_be_kept_fails_at_once() -> None:
    driver = Alternating()
    driver.results.append(lambda: None)
    controller, _ = begun(driver)
    assert controller.job.state == "failed"
    assert controller.job.reason.startswith("the driver failed: AttributeError: Can't pickle")


class Silent(Alternating):
    """It leaves the second group open."""

    def committed(self, to: Dispatcher, group: int) -> None:
        to.dispatch(Task(1, 2, args={"group": 2}))


def test_one_that_dispatches_nothing_more_does_not_let_the_job_hang() -> None:
    controller, orders = begun(Silent())
    answer(controller, answer(controller, orders, 1.0), 2.0)
    assert controller.job.state == "failed"
    assert controller.job.reason == (
        "the driver dispatched nothing more, or left group 2 open: a driver ends the job with `finish`"
    )


def test_a_checkpoint_of_another_application_is_refused_with_a_line() -> None:
    controller = Controller(lambda config: Alternating())
    summary = {"losses": [], "seconds": 1.0, "kernel_seconds": 0.0, "micro_tasks_done": {}, "repeated_micro_tasks": 0}
    controller.handle(JobStarted(CONFIG, 0.0, Checkpoint(3, "clock-3", summary)))
    assert controller.job.state == "failed"
    assert controller.job.reason == (
        "the driver failed: the checkpoint holds no state of it: another application wrote it; start a new job"
    )


class Waiting(Alternating):
    """It does without partitions, and seals the open group when they return."""

    def dispatch(self, to: Dispatcher, group: int) -> None:
        to.dispatch(Task(0, group, args={"group": group}))
        if group > 1:
            to.seal(group)

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        to.dispatch(Task(1, 1, args={"group": 1}))
        super().start(to, partitions, seed)

    def vanished(self, to: Dispatcher, partitions: Collection[int]) -> bool:
        return True

    def returned(self, to: Dispatcher, partitions: Collection[int]) -> None:
        to.seal(1, {0})


def test_a_group_that_is_complete_without_vanished_executors_is_committed() -> None:
    controller = Controller(lambda config: Waiting())
    for name, tier in (("r", "reliable"), ("t", "transient")):
        controller.handle(NodeJoined(name, f"tcp://{name}", tier, 1, 0.0))  # type: ignore[arg-type]
    controller.handle(JobStarted(JobConfig("driven", app="mine:App", n_partitions=2, n_shards=1, clocks=9), 0.0))
    for name in ("r", "t"):
        controller.handle(NodeReady(name, f"tcp://{name}", 1, (0,) if name == "r" else (1,), 0.0))
    orders = controller.handle(ShardsOpened("r", "tcp://r", (0,), 1, 0.0))
    sent = {order.node: order for order in orders if isinstance(order, Dispatch)}
    assert {node: [task.partition for task in order.tasks] for node, order in sent.items()} == {"r": [0], "t": [1]}
    answer(controller, [sent["r"]], 1.0)
    orders = controller.handle(NodesLost({"tcp://t": "killed"}, 2.0))
    (withdrawn,) = (order for order in orders if isinstance(order, Dispatch))
    assert [(task.partition, task.attempt, task.withdrawn) for task in withdrawn.tasks] == [(1, 2, True)]
    assert controller.job.driver is not None
    assert controller.job.driver.absent == {1}, "r has not loaded its input"
    controller.handle(BatchDone("r", "tcp://r", 1, (TaskStats(1, 2, 0.0, 0, 0.0),), 3.0))
    assert controller.job.tasks is not None
    assert (controller.job.state, controller.job.tasks.common) == ("waiting", 0)
    orders = controller.handle(NodeReady("r", "tcp://r", 2, (0, 1), 4.0))
    assert controller.job.tasks.common == 1
    assert [order.group for order in orders if isinstance(order, Dispatch)] == [2]


class Counting(Alternating):
    """Counts the job's clocks itself: each of two groups."""

    clocks: int | None = 3
    clock = 0

    def committed(self, to: Dispatcher, group: int) -> None:
        self.clock += group % 2 == 0
        if self.clock == self.clocks:
            to.finish(group, "all clocks")
        else:
            super().committed(to, group)

    def figures(self) -> dict[str, float]:
        return {"groups": 2 * self.clock}


def test_clocks_that_the_driver_counts_are_those_of_the_status_the_hold_and_the_result() -> None:
    assert describe(begun(Alternating())[0].job, 0, 1.0)["clocks"] == 9
    controller, orders = begun(Counting(), replace(CONFIG, evaluate_every=2))
    controller.handle(HoldRequested(1, 0.5))
    seen = []
    while any(isinstance(order, Dispatch) for order in orders):
        orders = answer(controller, orders, 1.0 + len(seen))
        status = describe(controller.job, 0, 1.0)
        seen.append((status["clock"], status["clocks"], len(status["losses"])))
    assert seen == [(0, 3, 0), (1, 3, 1)], "two groups, and held after clock 1"
    orders = controller.handle(HoldRequested(None, 4.0))
    evaluated, gathered = [], []
    for second in range(5, 9):
        orders = answer(controller, orders, float(second))
        evaluated += [(order.group, order.clock) for order in orders if isinstance(order, Evaluate)]
        gathered += [order for order in orders if isinstance(order, GatherModel)]
    assert evaluated == [(4, 2)], "the group that completed clock 2"
    controller.handle(Evaluated(4, controller.job.shards.generation, {"loss": 0.5}, 9.0))
    assert describe(controller.job, 0, 9.0)["metrics"] == [[2, {"loss": 0.5}]]
    (last,) = gathered
    assert (last.committed, last.summary["clocks"], last.summary["driver_figures"]) == (6, 3, {"groups": 6})
    assert [clock for clock, _ in last.summary["losses"]] == [1, 2, 3]


def test_a_job_ends_by_a_rule_on_the_losses_of_the_clocks_that_the_driver_counts() -> None:
    controller, orders = begun(Counting(), replace(CONFIG, until="loss=1"))
    orders = answer(controller, orders, 1.0)
    assert [order.group for order in orders if isinstance(order, Dispatch)] == [2], "no clock is complete"
    orders = answer(controller, orders, 2.0)
    assert [type(order) for order in orders if isinstance(order, Dispatch | GatherModel)] == [GatherModel]
    assert controller.job.stopping.criterion == "converged: the loss of clock 1 is 1, at most 1"
