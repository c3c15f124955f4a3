"""The driver and its executors do what the master does, whatever vanishes in the middle of a group."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.apps.bgd.directions import Lbfgs, SteepestDescent
from proteus_spot.psengine.apps.bgd.driver import ElasticDescentDriver
from proteus_spot.psengine.apps.bgd.executor import DescentExecutor, tables
from proteus_spot.psengine.apps.bgd.steps import FixedStep, SearchedStep
from tests.psengine.apps.bgd.descents import L2, Descent, partitions
from tests.psengine.apps.bgd.job_in_process import JobInProcess

COUNT, MEMORY = 6, 4


RULES = {"constant": (FixedStep(1.0), 0), "searched": (SearchedStep(), 0), "lbfgs": (SearchedStep(), MEMORY)}


def engine(
    rule: str, missing: Any = "approximate", clocks: int = 8, seed: int = 0, approximation: Any = "kept"
) -> JobInProcess:
    step, memory = RULES[rule]
    penalty = np.full((5, 1), L2)
    return JobInProcess(
        lambda: ElasticDescentDriver(step, memory, missing, clocks, approximation),
        tables(5, 1, COUNT, memory),
        [DescentExecutor(part, penalty, memory > 0) for part in partitions(COUNT)],
        seed,
    )


@pytest.mark.parametrize("rule", RULES)
def test_without_a_loss_it_is_the_master(rule: str) -> None:
    job = engine(rule)
    while job.run_one():
        pass
    assert job.end is not None
    assert job.end[1] == "8 rounds; redone rounds: 0"
    step, memory = RULES[rule]
    run = Descent(COUNT, step, Lbfgs(memory) if memory else SteepestDescent())
    run.until(lambda: run.master.rounds == 8)
    for ours, theirs in zip(job.models, run.models[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_with_a_loss_and_a_return_it_is_the_master(rule: str) -> None:
    job, (step, memory) = engine(rule), RULES[rule]
    run = Descent(COUNT, step, Lbfgs(memory) if memory else SteepestDescent(), approximation="redone")
    while len(job.models) < 3:
        job.run_one()
    job.lose([1, 4])
    run.until(lambda: run.master.rounds == 3)
    run.answer([1, 4])
    while len(job.models) < 5:
        job.run_one()
    run.until(lambda: run.master.rounds == 5)
    job.bring_back([1, 4])
    run.cluster.bring_up([1, 4])
    if not job.state.asked >= {1, 4}:  # in the middle of a round: they are members of the next one
        run.cluster.present -= {1, 4}
        run.until(lambda: run.master.rounds == 6)
        run.cluster.bring_up([1, 4])
    while job.run_one():
        pass
    run.until(lambda: run.master.rounds == 8)
    assert job.end is not None
    assert job.end[1] == "8 rounds; redone rounds: 1"
    for ours, theirs in zip(job.models, run.models[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.frozensets(st.integers(0, COUNT - 1), max_size=3),
        st.booleans(),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.sampled_from(sorted(RULES)), st.integers(0, 9), st.sampled_from(["kept", "redone"]))
def test_whatever_vanishes_each_step_counts_every_partition_once(
    events: Any, rule: str, seed: int, approximation: str
) -> None:
    job = engine(rule, seed=seed, approximation=approximation)
    checked = Checked(job)
    for tasks, executors, is_loss in events:
        for _ in range(tasks):
            checked.run_one()
        (job.lose if is_loss else job.bring_back)(executors)
    job.bring_back(range(COUNT))
    while checked.run_one():
        pass
    assert job.end is not None
    assert job.state.rounds == 8 or "no step" in job.end[1]


def lost_nodes(approximation: str, events: Any, per_node: int) -> JobInProcess:
    """A descent of 8 steps in which whole nodes go between two rounds, or some of a node's executors."""
    job = engine("constant", approximation=approximation)
    job.tables.per_node = per_node
    for vanishing, returning in events:
        job.bring_back(returning)
        job.lose(vanishing)
        rounds = len(job.models)
        while len(job.models) == rounds and job.run_one():
            pass
    job.bring_back(range(COUNT))
    while job.run_one():
        pass
    return job


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.frozensets(st.integers(0, COUNT - 1), max_size=4)] * 2), max_size=7), st.integers(1, 3))
def test_kept_sums_and_a_second_reduce_agree(events: Any, per_node: int) -> None:
    kept, redone = (lost_nodes(approximation, events, per_node) for approximation in ("kept", "redone"))
    assert len(kept.models) == len(redone.models)
    assert kept.state.redone == redone.state.redone
    assert kept.state.second_reduces <= redone.state.second_reduces
    for ours, theirs in zip(kept.models, redone.models, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_only_a_node_that_is_lost_in_part_needs_a_second_reduce() -> None:
    events = [(frozenset[int](), frozenset[int]())] * 2
    whole = lost_nodes("kept", [*events, (frozenset({2, 3}), ())], 2)
    back = {"redone_rounds": 1, "approximated": 0, "not_approximated": 0}
    assert whole.driver.figures() == back | {"second_reduces": 0}
    two = lost_nodes("kept", [*events, (frozenset({0, 1, 4, 5}), ())], 2)
    assert two.driver.figures() == back | {"second_reduces": 0}
    part = lost_nodes("kept", [*events, (frozenset({2}), ())], 2)
    assert part.driver.figures() == back | {"second_reduces": 1}


def until(checked: Checked, phase: str, rounds: int) -> None:
    """Run tasks until a phase of a round has begun."""
    while (checked.job.state.phase, checked.job.state.rounds) != (phase, rounds):
        assert checked.run_one()


@pytest.mark.parametrize("approximation", ["kept", "redone"])
def test_losses_in_consecutive_rounds_and_in_the_round_of_a_return(approximation: str) -> None:
    job = engine("searched", approximation=approximation)
    checked = Checked(job)
    until(checked, "gradient", 3)
    job.lose([0, 1])
    until(checked, "gradient", 4)
    job.lose([4])
    until(checked, "gradient", 5)
    assert [(sorted(entry.partitions), entry.round_number) for entry in job.state.roster.queue] == [
        ([0, 1], 3),
        ([4], 4),
    ]
    job.bring_back([0, 1])
    until(checked, "gradient", 6)  # the round that they are members of
    assert job.state.asked == {0, 1, 2, 3, 5}
    job.lose([2])
    until(checked, "direction", 6)
    assert [sorted(entry.partitions) for entry in job.state.roster.queue] == [[0, 1], [4], [2]]
    assert [sorted(entry.partitions) for entry in job.state.standing] == [[4], [2]], "0 and 1 are in the sum"
    until(checked, "gradient", 7)
    assert [sorted(entry.partitions) for entry in job.state.roster.queue] == [[4], [2]]
    assert job.state.redone == 3


def test_the_loss_of_one_of_several_that_return_leaves_their_approximation() -> None:
    job = engine("constant")
    checked = Checked(job)
    until(checked, "gradient", 2)
    job.lose([2, 3])
    until(checked, "gradient", 4)
    job.bring_back([2, 3])
    until(checked, "gradient", 5)
    assert job.state.asked == set(range(COUNT))
    job.lose([3])  # 2 may be in the sum already: the round is done again without both
    until(checked, "gradient", 6)
    assert job.state.contributors == {0, 1, 4, 5}
    assert [(sorted(entry.partitions), entry.round_number) for entry in job.state.roster.queue] == [([2, 3], 2)]
    assert job.state.second_reduces == 0
    job.bring_back([3])
    until(checked, "direction", 7)
    assert job.state.contributors == set(range(COUNT))


def test_a_loss_in_a_line_search_ends_it() -> None:
    job = engine("searched")
    checked = Checked(job)
    until(checked, "trial", 3)
    model = job.tables.get("weights")
    job.lose([4, 5])
    until(checked, "gradient", 4)
    assert job.state.contributors == {0, 1, 2, 3}
    assert job.state.redone == 1
    assert np.array_equal(checked.models[3], model), "the round is done again at the same model"


def test_a_loss_in_round_0_is_left_out_counted_and_logged() -> None:
    job = engine("constant")
    checked = Checked(job)
    job.lose([1, 4])
    until(checked, "gradient", 2)
    figures = {"redone_rounds": 0, "second_reduces": 0, "approximated": 0, "not_approximated": 2}
    assert job.driver.figures() == figures
    assert job.state.contributors == {0, 2, 3, 5}
    (remark,) = job.driver.remarks()
    assert remark.startswith("round 0: partitions 1, 4 are away and were in no step yet: they are left out until")


def test_the_queue_returns_first_in_first_out_an_entry_at_a_time() -> None:
    job = engine("constant")
    for lost in ([3, 4, 5], [1]):
        rounds = len(job.models)
        while len(job.models) < rounds + 2:
            assert job.run_one()
        job.lose(lost)
    while len(job.models) < 6:
        assert job.run_one()
    assert [job.driver.restarts(frozenset({1, 3, 4, 5}), free) for free in range(5)] == [
        (),
        (),
        (),
        (3, 4, 5),
        (3, 4, 5, 1),
    ]
    job.lose([2])  # it is in no entry before the round has ended
    assert job.driver.restarts(frozenset(range(1, 6)), 2) == (), "it does not overtake an entry that is too large"
    assert job.driver.restarts(frozenset(range(1, 6)), 4) == (3, 4, 5, 1)
    assert job.driver.restarts(frozenset(range(1, 6)), 5) == (3, 4, 5, 1, 2)


class Checked:
    """Checks each step of a job against gradients that are computed beside it."""

    def __init__(self, job: JobInProcess) -> None:
        self.job, self.parts = job, partitions(COUNT)
        self.models = [job.tables.get("weights")]

    def gradient(self, executors: Collection[int], model: np.ndarray) -> np.ndarray:
        return sum((self.parts[p].gradient(model)[1] for p in executors), np.zeros_like(model))

    def run_one(self) -> bool:
        job = self.job
        if not job.queue or job.queue[0].args[0] != "step":
            self._check_search(job.queue and job.state.search)
            ran = job.run_one()
            self._check_stored()
            return ran
        before, rounds = job.state, len(job.models)
        direction = job.tables.get("direction")
        done = job.run_one()
        if len(job.models) > rounds:
            model = self.models[-1]
            counted = sorted(before.contributors) + [p for entry in before.standing for p in entry.partitions]
            assert sorted(counted) == list(range(COUNT))
            expected = self.gradient(before.contributors, model) + L2 * model
            for entry in before.standing:
                if entry.number is not None:
                    approximation = job.tables.get("approximations", slice(entry.number * 5, entry.number * 5 + 5))
                    at_loss = self.models[entry.round_number - 1]
                    np.testing.assert_allclose(approximation, self.gradient(entry.partitions, at_loss), atol=1e-11)
                    expected = expected + approximation
            if not (before.pairs and not before.steepest):
                np.testing.assert_allclose(direction, -expected, atol=1e-11)
            else:
                np.testing.assert_allclose(job.tables.get("total"), expected, atol=1e-11)
            used = {entry.number for entry in before.standing}
            for slot in set(range(COUNT)) - used:
                assert not job.tables.get("approximations", slice(slot * 5, slot * 5 + 5)).any()
            self.models.append(job.tables.get("weights"))
            if before.search is not None:
                assert self.objective(before, self.models[-1]) < self.objective(before, model)
        self._check_stored()
        return done

    def objective(self, state: Any, model: np.ndarray) -> float:
        """The objective of a round: losses, approximations without constants, penalty."""
        loss = sum(self.parts[p].gradient(model)[0] for p in state.contributors)
        for entry in state.standing:
            if entry.number is not None:
                rows = slice(entry.number * 5, entry.number * 5 + 5)
                loss += float(np.vdot(self.job.tables.get("approximations", rows), model))
        return loss + 0.5 * L2 * float(np.vdot(model, model))

    def _check_search(self, search: Any) -> None:
        if search:
            assert abs(search.value - self.objective(self.job.state, self.models[-1])) < 1e-12

    def _check_stored(self) -> None:
        """What is stored is the gradient of those that are said to be in it, at the model before."""
        stored = self.job.state.roster.stored
        if self.job.state.phase not in ("kept", "approximate", "step") and len(self.models) > 1:
            np.testing.assert_allclose(
                self.job.tables.get("stored"), self.gradient(stored, self.models[-2]), atol=1e-11
            )


def test_ignore_leaves_out_and_stall_keeps_its_tasks() -> None:
    job = engine("constant", missing="ignore")
    while len(job.models) < 2:
        job.run_one()
    job.lose([0, 1])
    while job.run_one():
        pass
    assert job.end is not None
    assert job.state.contributors == {2, 3, 4, 5}
    assert job.end[1] == "8 rounds; redone rounds: 0"
    job = engine("constant", missing="stall")
    while len(job.models) < 2:
        job.run_one()
    job.lose([0, 1])
    assert not job.absent
    while job.run_one():
        pass
    assert job.state.contributors == frozenset(range(COUNT))
