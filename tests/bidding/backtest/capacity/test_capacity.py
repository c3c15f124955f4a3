"""Jobs with deadlines on records of availability: in time whatever happens, and never below the bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.capacity.bounds import elastic_bound, gang_bound
from proteus_spot.bidding.backtest.capacity.elastic import run_elastic
from proteus_spot.bidding.backtest.capacity.gang import GANGS, gang_zones, run_gang
from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.one import RULES, run_one
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, Floats, from_rows
from proteus_spot.bidding.policies.deadline import OneMachine, one_machine
from tests.bidding.policies.deadline.one_job import Job, run
from tests.bidding.policies.deadline.test_one_machine import uniform_progress

COST, FINISHED = int(JobFigure.COST_USD), int(JobFigure.FINISHED_S)


def record_of(counts: np.ndarray, spot: list[float], on_demand: float = 10.0) -> CapacityRecord:
    zones = tuple(f"r{at}-a" for at in range(counts.shape[1]))
    return CapacityRecord(600, zones, counts.astype(np.int64), np.array(spot), np.full(len(spot), on_demand))


@pytest.mark.parametrize(("spot", "on_demand"), [([1.0], [10.0]), ([1.0, 2.0], [10.0]), ([1.0], [10.0, 10.0])])
def test_a_record_has_both_prices_of_each_zone(spot: list[float], on_demand: list[float]) -> None:
    with pytest.raises(ValueError, match="2 zones"):
        CapacityRecord(600, ("r0-a", "r1-a"), np.ones((4, 2), np.int64), np.array(spot), np.array(on_demand))


def random_record(seed: int, steps: int = 400, zones: int = 3, most: int = 8) -> CapacityRecord:
    rng = np.random.default_rng(seed)
    counts = np.clip(np.cumsum(rng.integers(-2, 3, size=(steps, zones)), axis=0) + most // 2, 0, most)
    counts[rng.random((steps, zones)) < 0.05] = 0
    return record_of(counts, list(np.linspace(1.5, 3, zones)))


def results(name: str, record: CapacityRecord, job: CapacityJob, starts: np.ndarray) -> Floats:
    return run_elastic(record, job, starts, 60) if name == "deadline" else run_gang(name, record, job, starts, 60)


@pytest.mark.parametrize("name", ["deadline", *GANGS])
@given(seed=st.integers(0, 10_000), slack=st.floats(1.06, 2.0), machines=st.integers(1, 8))
@settings(max_examples=15, deadline=None)
def test_all_are_in_time_and_above_the_bounds(name: str, seed: int, slack: float, machines: int) -> None:
    record, job = random_record(seed), CapacityJob(machines, 10.0, slack, 360.0)
    starts = np.arange(60, 260, 40)
    rows = results(name, record, job, starts)
    assert (rows[:, FINISHED] <= job.deadline_s + 1e-6).all()
    bound = elastic_bound(record, job, starts)
    assert (rows[:, COST] >= bound - 1e-6).all()
    whole = job.deadline_s % record.step_s == 0
    if name != "deadline" and whole:
        assert (rows[:, COST] >= gang_bound(record, job, starts) - 1e-6).all()
    assert (gang_bound(record, job, starts) >= bound * (1 - 1e-9)).all()


def test_spot_that_is_always_there_costs_its_price() -> None:
    record = record_of(np.full((300, 2), 8), [2.0, 3.0])
    job = CapacityJob(4, 10.0, 1.5, 360.0)
    starts = np.array([60])
    for name in ("deadline", *GANGS.keys() - {"on-demand"}):
        assert results(name, record, job, starts)[0, COST] == pytest.approx(4 * (10 + 0.1) * 2.0), name
    assert elastic_bound(record, job, starts)[0] == pytest.approx(4 * 10 * 2.0)
    assert gang_bound(record, job, starts)[0] == pytest.approx(4 * 10.1 * 2.0)


def test_part_of_the_machines_is_of_use_to_machines_that_come_and_go_alone() -> None:
    record = record_of(np.full((300, 1), 3), [2.0])
    job = CapacityJob(4, 10.0, 1.5, 360.0)
    starts = np.array([60])
    elastic, gang = results("deadline", record, job, starts)[0], results("gang", record, job, starts)[0]
    assert elastic[JobFigure.ON_DEMAND_S] == 0
    assert gang[JobFigure.SPOT_S] == 0
    assert gang[COST] == pytest.approx(4 * 10.1 * 10.0)


@given(seed=st.integers(0, 10_000), slack=st.floats(1.1, 2.0), machines=st.integers(1, 8), repeated_s=st.floats(0, 60))
@settings(max_examples=15, deadline=None)
def test_machines_that_share_tasks_in_rounds_are_in_time_and_cost_no_less(
    seed: int, slack: float, machines: int, repeated_s: float
) -> None:
    record, starts = random_record(seed), np.arange(60, 260, 40)
    job = CapacityJob(machines, 10.0, slack, 360.0, tasks=machines, repeated_s=repeated_s)
    rows = run_elastic(record, job, starts, 60)
    assert (rows[:, FINISHED] <= job.deadline_s + 1e-6).all()
    assert (rows[:, COST] >= elastic_bound(record, job, starts) - 1e-6).all()


@pytest.mark.parametrize(("tasks", "there", "held"), [(4, 3, 2), (3, 2, 2)])
def test_machines_work_in_whole_rounds_of_tasks(tasks: int, there: int, held: int) -> None:
    record = record_of(np.full((400, 1), there), [2.0])
    row = run_elastic(record, CapacityJob(tasks, 10.0, 3.0, 360.0, tasks=tasks), np.array([60]), 60)[0]
    assert row[COST] == pytest.approx(held * (20 + 0.1) * 2.0), "two rounds, each as long as one with all"


def test_a_loss_has_the_work_of_its_clock_done_again() -> None:
    counts = np.full((400, 1), 4)
    counts[80] = 3
    record, starts = record_of(counts, [2.0]), np.array([60])
    plain, again = (
        run_elastic(record, CapacityJob(4, 10.0, 3.0, 360.0, repeated_s=each), starts, 60)[0] for each in (0.0, 30.0)
    )
    assert again[COST] - plain[COST] == pytest.approx(4 * 30 / 3600 * 2.0)


def _places(name: str, counts: np.ndarray, spot: list[float], zones: tuple[str, ...]) -> Floats:
    record = CapacityRecord(600, zones, counts.astype(np.int64), np.array(spot), np.full(len(spot), 10.0))
    return run_gang(name, record, CapacityJob(2, 10.0, 2.0, 360.0), np.array([60]), 60)[0]


def test_a_gang_that_switches_leaves_the_region_that_it_lost() -> None:
    counts = np.full((300, 3), 2)
    counts[70, 0] = 0
    zones = ("near-a", "near-b", "far-a")
    hours = (10 / 6 + 0.0, 10 + 0.2 - 10 / 6)  # ten steps in the cheapest zone, then elsewhere, with two boots in all
    switched = _places("uniform-progress(S)", counts, [1.0, 1.1, 1.5], zones)
    assert switched[COST] == pytest.approx(2 * (hours[0] * 1.0 + hours[1] * 1.5))
    failed_over = _places("gang", counts, [1.0, 1.1, 1.5], zones)
    assert failed_over[COST] == pytest.approx(2 * (hours[0] * 1.0 + hours[1] * 1.1))


def test_a_gang_that_probes_moves_to_what_grants_as_often_or_more_for_its_price() -> None:
    counts = np.full((300, 2), 2)
    counts[60, 0] = 0
    zones, spot = ("near-a", "far-a"), [1.0, 1.5]
    stays = _places("uniform-progress(A)", counts, spot, zones)
    assert stays[COST] == pytest.approx(2 * 10.1 * 1.5), "of the last five answers of the other one a refusal is left"
    moves = _places("uniform-progress(AP)", counts, spot, zones)
    assert moves[JobFigure.STARTED] == 4
    assert 2 * 10.2 < moves[COST] < 2 * 10.2 * 1.4


def test_machines_above_the_count_are_lost() -> None:
    counts = np.full((300, 1), 4)
    counts[80:] = 1
    row = results("deadline", record_of(counts, [2.0]), CapacityJob(4, 10.0, 2.0, 360.0), np.array([60]))[0]
    assert row[JobFigure.LOST] == 3


def test_a_gang_too_large_for_a_zone_is_spread() -> None:
    record = record_of(np.full((5, 2), 8), [2.0, 3.0])
    counts, prices = gang_zones(record, 12)
    assert counts.tolist() == [[16]] * 5
    assert prices[0, 0] == pytest.approx((8 * 2.0 + 4 * 3.0) / 12)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_loop_is_the_rule(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    there = np.repeat(rng.integers(0, 2, size=200), rng.integers(1, 7, size=200))
    job = CapacityJob(1, 20.0, 1.2, 420.0)
    row = run_one(name, there, 600.0, 0.3, 1.0, job, np.array([5]))[0]
    rule = {"uniform-progress": uniform_progress, "deadline": one_machine, "deadline+memory": OneMachine().step}[name]
    naive = run(rule, Job(job.work_s, job.deadline_s, 420.0), [600.0], [float(one) for one in there[5:]])  # type: ignore[arg-type]
    assert row[FINISHED] == pytest.approx(naive.finished_s)
    assert row[COST] == pytest.approx((naive.on_demand_s + 0.3 * naive.spot_s) / 3600)


def test_rows_make_a_record_and_a_hole_holds_what_was_seen() -> None:
    times, zones = [0, 0, 600, 1800, 1800], ["r1-a", "r2-a", "r1-a", "r1-a", "r2-a"]
    record = from_rows(times, zones, [3, 4, 5, 6, 7], {"r1": (1.0, 4.0), "r2": (2.0, 5.0)})
    assert record.counts.tolist() == [[3, 4], [5, 4], [5, 4], [6, 7]]
    assert (record.step_s, record.regions) == (600, {"r1": (0,), "r2": (1,)})
    assert record.of([1]).spot.tolist() == [2.0]


@pytest.mark.parametrize(
    ("times", "counts", "prices", "says"),
    [
        ([], [], {}, "no row"),
        ([0], [-1], {"r": (1.0, 2.0)}, "-1"),
        ([0], [1], {}, "no price of r"),
        ([0, 600, 1510], [1, 1, 1], {"r": (1.0, 2.0)}, "off the steps"),
    ],
)
def test_rows_that_cannot_be_are_refused(
    times: list[int], counts: list[int], prices: dict[str, tuple[float, float]], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        from_rows(times, ["r-a"] * len(times), counts, prices)


@pytest.mark.parametrize(
    "change", [{"machines": 0}, {"hours": 0.0}, {"slack": 0.9}, {"restart_s": -1.0}, {"repeated_s": -1.0}]
)
def test_a_job_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="want a machine"):
        CapacityJob(**{"machines": 1, **change})  # type: ignore[arg-type]


def test_tasks_are_as_many_as_machines() -> None:
    with pytest.raises(ValueError, match="as many tasks as machines"):
        CapacityJob(4, tasks=8)
