"""How far a job goes: target, end and hold, whichever is the nearest; and an end is not held up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig, JobError, Until
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.protocol.events import (
    BatchFailed,
    HoldRequested,
    JobStarted,
    NodesLost,
    SaveFailed,
    StopRequested,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, GatherModel
from proteus_spot.psengine.scheduling.stopping import StoppingRule
from tests.support.controller import done, started, started_early

CLOCKS = st.none() | st.integers(0, 9)


@given(CLOCKS, CLOCKS, CLOCKS, CLOCKS)
def test_the_nearest_one_counts(target: int | None, end: int | None, held: int | None, made: int | None) -> None:
    limits = StoppingRule()
    if made is not None:
        limits.passes_made_at(made)
        limits.passes_made_at(0)  # the first decision stays
    limits.pause_at(held)
    limits.target = target
    if end is not None:
        limits.end_at(end)
    last = min((clock for clock in (target, end, made) if clock is not None), default=None)
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


def test_where_the_driver_counts_the_clocks_a_hold_is_by_them() -> None:
    limits = StoppingRule()
    limits.complete(2, 9)
    limits.pause_at(3)
    assert limits.limit is None
    limits.complete(3, 12)
    assert limits.limit == 12
    limits.pause_at(0)
    assert limits.limit == 12


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
    assert [order.group for order in again] == ([2] if stopped else [])


@pytest.mark.parametrize(
    ("until", "losses", "clock"),
    [
        ("loss=0.5", [0.9, 0.5, 0.4], 2),
        ("loss=-1e-3", [0.9, float("nan"), -0.2], 3),
        ("no-improvement=2", [0.9, 0.8, 0.8, 0.9], 4),
        ("no-improvement=2", [0.9, 0.8, 0.85, 0.79, 0.8], None),
        ("no-improvement=2", [float("nan"), 0.9, 0.8, float("nan"), float("nan")], 5),
        ("no-improvement=3", [0.9, 0.9, 0.9], None),
        ("", [0.9, 0.9, 0.0], None),
    ],
)
def test_a_job_has_converged_at_the_first_clock_at_which_its_rule_holds(
    until: str, losses: list[float], clock: int | None
) -> None:
    rule = StoppingRule()
    rule.until = Until.parse(until)
    pairs = list(enumerate(losses, start=1))
    assert "(pass 0.5)" in (rule.reached(pairs[:clock], 0.5) if clock else "(pass 0.5)")
    reached = [bool(rule.reached(pairs[:number])) for number in range(len(pairs) + 1)]
    assert reached.index(True) == clock if clock else not any(reached)


@pytest.mark.parametrize(
    "until",
    ["loss", "loss=", "loss=nan", "loss=inf", "no-improvement=0", "no-improvement=1.5", "x=1", "x>1", "x>=nan", ">=1"],
)
def test_nonsense_is_no_rule(until: str) -> None:
    with pytest.raises(JobError, match="is not a rule: want loss=NUMBER, no-improvement=CLOCKS"):
        JobConfig("job", clocks=1, until=until).validate()


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        ("accuracy>=0.9", "accuracy of clock 4 is 0.9, at least 0.9"),
        ("error<=2", "error of clock 6 is 1.5, at most 2"),
        ("error<=1", ""),
    ],
)
def test_a_figure_of_the_evaluation_ends_a_job_at_its_bound(until: str, reason: str) -> None:
    rule = StoppingRule()
    rule.until = Until.parse(until)
    points = [
        (2, {"accuracy": 0.8, "error": None}),
        (4, {"accuracy": 0.9, "error": 3.0}),
        (6, {"accuracy": 0.8, "error": 1.5}),
    ]
    assert rule.reached([(7, 1.0)], None, points) == (reason and f"converged: {reason}")
    assert not rule.reached([(7, 1.0)], None, points[:1])
    rule.until = Until.parse("rmse<=1")
    with pytest.raises(JobError, match=r"until names 'rmse', and .* returns accuracy, error: use one of these"):
        rule.reached([(7, 1.0)], None, points)


def test_a_converged_job_ends_and_decides_again_after_a_rollback() -> None:
    controller, order = started(JobConfig("job", n_partitions=2, n_shards=1, clocks=9, until="no-improvement=2"))
    for clock in (1, 2):
        (order,) = (o for o in controller.handle(done(order, 1.0 * clock)) if isinstance(o, Dispatch))
    (gather,) = controller.handle(done(order, 3.0))
    assert isinstance(gather, GatherModel)
    assert gather.committed == 3
    assert gather.summary["converged"] == "converged: no lower loss in the 2 clocks up to 3"
    controller.handle(SaveFailed("server away", False, 4.0))
    controller.handle(NodesLost({"tcp://r": "killed"}, 5.0))
    assert controller.job.stopping.last_clock == 9, "it is at the beginning again"
    assert controller.job.stopping.criterion == ""


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_job_ends_when_it_has_made_its_passes(staleness: int) -> None:
    """A pass is three clocks. With stale reads the clocks that were begun beyond would be more."""
    config = JobConfig("job", n_partitions=2, n_shards=1, passes=2, staleness=staleness)
    controller, orders = started_early(config, lambda config: Ssp(staleness, lambda group: group / 3))
    for clock in range(1, 6):
        orders += [o for o in controller.handle(done(orders.pop(0), 1.0 * clock)) if isinstance(o, Dispatch)]
    (order,) = orders
    status = describe(controller.job, 0, 6.0)
    assert (status["passes_done"], status["passes"], status["clock"]) == (5 / 3, 2, 5)
    (gather,) = controller.handle(done(order, 6.0))
    assert isinstance(gather, GatherModel)
    assert (gather.summary["clocks"], gather.summary["passes"]) == (6, 2.0)


class ByExamples(Ssp):
    """A pass is over five examples; each clock looks at two."""

    def passes(self, group: int, examples: int) -> float:
        return examples / 5


def test_passes_by_examples_are_counted_again_after_a_rollback() -> None:
    controller, order = started(JobConfig("job", n_partitions=2, n_shards=1, passes=1), lambda config: ByExamples())
    for clock in (1, 2):
        (order,) = (o for o in controller.handle(done(order, 1.0 * clock)) if isinstance(o, Dispatch))
    (gather,) = controller.handle(done(order, 3.0))
    assert isinstance(gather, GatherModel)
    assert (gather.summary["clocks"], gather.summary["passes"], gather.summary["examples_done"]) == (3, 6 / 5, 6)
    controller.handle(SaveFailed("server away", False, 4.0))
    controller.handle(NodesLost({"tcp://r": "killed"}, 5.0))
    assert controller.job.stopping.last_clock is None
    assert describe(controller.job, 0, 6.0)["passes_done"] == 0.0


def test_passes_are_refused_where_nobody_says_what_one_is() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("job", passes=3), 0.0))
    assert controller.job.state == "failed"
    assert controller.job.reason.startswith(
        "the job ends after 3 passes, and mlr does not say what a pass is: give clocks"
    )
