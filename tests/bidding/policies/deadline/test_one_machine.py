"""One machine: the deadline is kept whatever spot does, and little is paid for it."""

import inspect
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.policies.deadline import OneMachine, one_machine
from tests.bidding.policies.deadline.one_job import Job, Outcome, Rule, run

RULES: dict[str, Callable[[], Rule]] = {"one_machine": lambda: one_machine, "OneMachine": lambda: OneMachine().step}
HOUR = 3600.0


@pytest.fixture(params=sorted(RULES))
def rule(request: pytest.FixtureRequest) -> Rule:
    return RULES[request.param]()


def whole_gaps(finished_s: float, gap_s: float) -> float:
    return float(np.ceil(finished_s / gap_s - 1e-9) * gap_s)


_SECONDS = st.one_of(st.integers(0, 2000).map(float), st.floats(0, 2000))


@given(
    work_s=st.floats(1, 40_000),
    restart_s=_SECONDS,
    gap_s=st.one_of(st.integers(1, 4000).map(float), st.floats(10, 4000)),
    slack_s=st.one_of(st.just(0.0), st.floats(0, 20_000)),
    there=st.lists(st.sampled_from([0.0, 0.0, 1e-6, 0.5, 0.999, 1.0, 1.0, 1.0]), min_size=1, max_size=60),
    name=st.sampled_from(sorted(RULES)),
)
@settings(max_examples=150, deadline=None)
def test_what_on_demand_would_have_finished_in_time_is_in_time(
    work_s: float, restart_s: float, gap_s: float, slack_s: float, there: list[float], name: str
) -> None:
    assume(work_s / gap_s < 500)
    job = Job(work_s, work_s + restart_s + slack_s, restart_s)
    outcome = run(RULES[name](), job, [gap_s], there)
    assert outcome.finished_s <= job.deadline_s + 1e-6
    on_demand_s = whole_gaps(work_s + restart_s, gap_s)
    if on_demand_s <= job.deadline_s:
        assert whole_gaps(outcome.finished_s, gap_s) <= job.deadline_s + 1e-6, "also where gaps are counted"


@given(
    gaps_s=st.lists(st.floats(20, 1500), min_size=1, max_size=8),
    there=st.lists(st.sampled_from([0.0, 0.01, 1.0, 1.0]), min_size=1, max_size=30),
    slack_s=st.floats(0, 9000),
    name=st.sampled_from(sorted(RULES)),
)
@settings(max_examples=60, deadline=None)
def test_gaps_of_all_lengths_are_in_time(gaps_s: list[float], there: list[float], slack_s: float, name: str) -> None:
    job = Job(15_000.0, 15_300.0 + slack_s, 300.0)
    assert run(RULES[name](), job, gaps_s, there).finished_s <= job.deadline_s + 1e-6


@pytest.mark.parametrize("restart_s", [0.0, 180.0, 720.0, 1500.0])
@pytest.mark.parametrize("share", [1e-9, 0.3, 0.999])
def test_spot_that_dies_after_each_taking_costs_only_slack(rule: Rule, restart_s: float, share: float) -> None:
    job = Job(10 * HOUR, 13 * HOUR, restart_s)
    assert run(rule, job, [600.0], [share]).finished_s <= job.deadline_s


def test_no_slack_is_on_demand_from_the_start(rule: Rule) -> None:
    outcome = run(rule, Job(2 * HOUR, 2 * HOUR + 300, 300.0), [600.0], [1.0])
    assert set(outcome.choices) == {"on-demand"}
    assert outcome.finished_s == 2 * HOUR + 300


def test_a_deadline_that_cannot_be_kept_is_missed_by_as_little_as_can_be(rule: Rule) -> None:
    outcome = run(rule, Job(2 * HOUR, HOUR, 300.0), [600.0], [1.0, 0.0])
    assert outcome.finished_s == 2 * HOUR + 300, "as on demand from the start, also after the deadline"


def test_spot_alone_where_it_stays(rule: Rule) -> None:
    outcome = run(rule, Job(5 * HOUR, 8 * HOUR, 180.0), [600.0], [1.0])
    assert set(outcome.choices) == {"spot"}


def test_spot_only_while_two_restarts_and_a_gap_fit(rule: Rule) -> None:
    def asked(time_left_s: float) -> str:
        return rule(20 * HOUR - time_left_s, 600.0, 10 * HOUR, 8 * HOUR, 20 * HOUR, 300.0, 0.0, "spot", True)

    enough_s = 2 * HOUR + 2 * 300 + 600
    assert [asked(enough_s), asked(enough_s - 1)] == ["spot", "on-demand"]


def test_time_is_counted_in_whole_gaps(rule: Rule) -> None:
    answer = rule(0.0, 1000.0, 1900.0, 0.0, 2950.0, 0.0, 0.0, "spot", True)
    assert answer == "on-demand", "done in the second gap; after one without work, in the third, which ends too late"


@pytest.mark.parametrize("done_s", [HOUR, HOUR + 1e-9, HOUR + 1])
def test_nothing_is_held_for_work_that_is_done(rule: Rule, done_s: float) -> None:
    for held in (None, "spot", "on-demand"):
        assert rule(100.0, 600.0, HOUR, done_s, 2 * HOUR, 60.0, 0.0, held, True) == "wait"


def test_the_same_question_has_the_same_answer() -> None:
    question = (9000.0, 600.0, 48 * HOUR, 7000.0, 52 * HOUR, 720.0, 0.0, "on-demand", True)
    assert len({one_machine(*question) for _ in range(5)}) == 1
    assert list(inspect.signature(OneMachine().step).parameters) == list(inspect.signature(one_machine).parameters)


def test_memory_is_of_one_job() -> None:
    used, fresh = OneMachine(), OneMachine()
    job, there = Job(5 * HOUR, 7 * HOUR, 300.0), [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    first = run(used.step, job, [600.0], there[::-1])
    assert first.finished_s <= job.deadline_s
    assert run(used.step, job, [600.0], there) == run(fresh.step, job, [600.0], there)


@pytest.mark.parametrize(("place", "value"), [(1, 0.0), (2, -1.0), (5, -1.0), (7, "reserved")])
def test_what_cannot_be_is_refused(rule: Rule, place: int, value: object) -> None:
    question: list[object] = [0.0, 600.0, HOUR, 0.0, 2 * HOUR, 60.0, 0.0, None, True]
    question[place] = value
    with pytest.raises(ValueError, match=str(value).lstrip("-")):
        rule(*question)  # type: ignore[arg-type]


def recorded(path: Path) -> tuple[float, list[bool]]:
    record = json.loads(path.read_text())
    return float(record["metadata"]["gap_seconds"]), [one > 0 for one in record["data"]]


def uniform_progress(
    elapsed_s: float, gap_s: float, work_s: float, done_s: float, deadline_s: float, restart_s: float,
    restart_left_s: float, held: str | None, spot_available: bool,
) -> str:  # fmt: skip
    """Uniform Progress (NSDI 2024): behind the even pace on demand, ahead of it spot or nothing."""
    if work_s - done_s + 2 * restart_s + gap_s > deadline_s - elapsed_s:
        return "on-demand"
    if held == "on-demand" and done_s < (elapsed_s + 2 * restart_s) * work_s / deadline_s:
        return "on-demand"
    if spot_available:
        return "spot"
    return "on-demand" if held != "on-demand" and done_s < elapsed_s * work_s / deadline_s else "wait"


def saved(outcome: Outcome, job: Job, spot_price: float = 0.3) -> float:
    cost = outcome.on_demand_s + spot_price * outcome.spot_s
    return (job.work_s - cost) / (job.work_s * (1 - spot_price))


def _from(there: Sequence[bool], start: int) -> list[float]:
    return [float(one) for one in there[start:]]


@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of records")
class TestRecords:
    def test_every_record_is_in_time(self, rule: Rule) -> None:
        paths = sorted(Path(os.environ["PROTEUS_TRACES"]).glob("availability/*/*.json"))
        assert paths
        for path in paths:
            gap_s, there = recorded(path)
            for slack in (1.02, 1.1, 1.5):
                for restart_s in (180.0, 720.0):
                    job = Job(20 * HOUR, 20 * HOUR * slack, restart_s)
                    for start in np.linspace(0, len(there) - 32 * HOUR / gap_s, 3).astype(int):
                        outcome = run(rule, job, [gap_s], _from(there, int(start)))
                        assert whole_gaps(outcome.finished_s, gap_s) <= job.deadline_s, (path, slack, restart_s, start)

    @pytest.mark.parametrize("deadline_h", [52, 70])
    @pytest.mark.parametrize("restart_s", [180.0, 720.0])
    def test_it_saves_more_than_uniform_progress(self, rule: Rule, deadline_h: int, restart_s: float) -> None:
        rng = np.random.default_rng(43)
        job = Job(48 * HOUR, deadline_h * HOUR, restart_s)
        for kind in ("k80_1", "k80_8", "v100_1", "v100_8"):
            gains = []
            for zone in "ab":
                name = f"availability/aws-2022-10/us-west-2{zone}_{kind}.json"
                gap_s, there = recorded(Path(os.environ["PROTEUS_TRACES"]) / name)
                for start in rng.integers(0, len(there) - deadline_h * 6, size=20):
                    mine, theirs = (
                        run(each, job, [gap_s], _from(there, int(start))) for each in (rule, uniform_progress)
                    )
                    gains.append(saved(mine, job) - saved(theirs, job))
            assert np.mean(gains) > 0, kind
