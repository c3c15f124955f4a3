"""The driver and its executors: each partition counts once in each step, whatever vanishes in the middle of a group."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.psengine.apps.bgd.descents import (
    COUNT,
    EVERYONE,
    INPUTS,
    PENALTY,
    RULES,
    CheckedDescent,
    gradient_of,
    loss_of,
)


def descended(model: np.ndarray, present: Collection[int], standing: np.ndarray | float = 0.0) -> np.ndarray:
    """One step of length 1 (Algorithm 1): `standing` is what stands for those that are away."""
    return model - (gradient_of(present, model) + standing + PENALTY * model)


def minimum(present: Collection[int], standing: np.ndarray | float = 0.0) -> np.ndarray:
    """Where the losses of these partitions, the penalty and a linear term are least."""

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        model = flat[:, None]
        loss, gradient = loss_of(present, model)
        value = loss + float(np.sum(standing * model)) + 0.5 * float(np.sum(PENALTY * model * model))
        return value, (gradient + standing + PENALTY * model)[:, 0]

    found = minimize(objective, np.zeros(INPUTS + 1), jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.x[:, None]


def test_without_a_loss_it_is_gradient_descent() -> None:
    job = CheckedDescent("constant")
    job.run_out()
    assert job.driver.end is not None
    assert job.driver.end[1] == "8 rounds; redone rounds: 0"
    expected = [np.zeros((INPUTS + 1, 1))]
    while len(expected) <= 8:
        expected.append(descended(expected[-1], EVERYONE))
    np.testing.assert_allclose(job.models, expected, atol=1e-12)


@pytest.mark.parametrize("approximation", ["kept", "redone"])
def test_the_gradient_before_a_loss_stands_for_what_is_away(approximation: str) -> None:
    job = CheckedDescent("constant", approximation=approximation)
    job.until("gradient", 3)
    job.lose([1, 4])
    job.until("direction", 4)
    job.bring_back([1, 4])  # for the round after the one under way
    job.run_out()
    assert job.driver.end is not None
    assert job.driver.end[1] == "8 rounds; redone rounds: 1"
    expected = [np.zeros((INPUTS + 1, 1))]
    for round_number in range(8):
        away = [1, 4] if round_number in (3, 4) else []
        standing = gradient_of(away, expected[2]) if away else 0.0
        expected.append(descended(expected[-1], EVERYONE.difference(away), standing))
    np.testing.assert_allclose(job.models, expected, atol=1e-12)


@pytest.mark.parametrize("rule", ["searched", "lbfgs"])
def test_a_search_ends_at_the_minimum(rule: str) -> None:
    job = CheckedDescent(rule, clocks=400)
    job.run_out()
    assert job.driver.end is not None
    assert job.driver.end[1] == "no step decreases the objective; redone rounds: 0"
    np.testing.assert_allclose(job.models[-1], minimum(EVERYONE), atol=1e-5)


def test_it_waits_at_the_minimum_of_its_approximation_and_goes_on_when_all_are_back() -> None:
    job = CheckedDescent("lbfgs", clocks=400)
    job.until("gradient", 3)
    standing = gradient_of([0, 1], job.models[2])
    job.lose([0, 1])
    job.run_out()
    assert job.driver.end is None
    np.testing.assert_allclose(job.models[-1], minimum([2, 3, 4, 5], standing), atol=1e-5)
    job.bring_back([0])  # an entry returns whole
    assert not job.run_one()
    job.bring_back([1])
    job.run_out()
    assert job.driver.end is not None
    assert job.driver.end[1] == "no step decreases the objective; redone rounds: 1"
    np.testing.assert_allclose(job.models[-1], minimum(EVERYONE), atol=1e-5)


def test_a_loss_forms_no_pair_and_the_round_after_it_does() -> None:
    job = CheckedDescent("lbfgs")
    job.until("gradient", 3)
    job.lose([0, 1])
    has_pair = []
    for rounds in range(3, 7):
        if rounds == 5:
            job.until("direction", 5)
            job.bring_back([0, 1])
        job.until("step", rounds)
        has_pair.append(job.state.figures.has_pair)
    assert has_pair == [False, True, True, False]


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
    job = CheckedDescent(rule, clocks=60, seed=seed, approximation=approximation)
    for tasks, partitions, is_loss in events:
        for _ in range(tasks):
            job.run_one()
        (job.lose if is_loss else job.bring_back)(partitions)
    job.bring_back(range(COUNT))
    rounds = job.state.rounds
    while job.state.rounds < rounds + 2 and job.run_one():
        pass
    assert job.state.rounds == rounds + 2 or job.driver.end is not None
    assert not job.state.roster.queue, "all are back, and no approximation stands"


def lost_nodes(approximation: str, events: Any, per_node: int) -> CheckedDescent:
    """A descent of 8 steps in which whole nodes go between two rounds, or some of a node's partitions."""
    job = CheckedDescent("constant", per_node=per_node, approximation=approximation)
    for vanishing, returning in events:
        job.bring_back(returning)
        job.lose(vanishing)
        rounds = len(job.models)
        while len(job.models) == rounds and job.run_one():
            pass
    job.bring_back(range(COUNT))
    job.run_out()
    return job


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.frozensets(st.integers(0, COUNT - 1), max_size=4)] * 2), max_size=7), st.integers(1, 3))
def test_kept_sums_and_a_second_reduce_agree(events: Any, per_node: int) -> None:
    kept, redone = (lost_nodes(approximation, events, per_node) for approximation in ("kept", "redone"))
    assert kept.state.redone == redone.state.redone
    assert kept.state.second_reduces <= redone.state.second_reduces
    np.testing.assert_allclose(kept.models, redone.models, atol=1e-12)


def test_only_a_node_that_is_lost_in_part_needs_a_second_reduce() -> None:
    events = [(frozenset[int](), frozenset[int]())] * 2
    whole = lost_nodes("kept", [*events, (frozenset({2, 3}), ())], 2)
    back = {"redone_rounds": 1, "approximated": 0, "not_approximated": 0}
    assert whole.driver.figures() == back | {"second_reduces": 0}
    two = lost_nodes("kept", [*events, (frozenset({0, 1, 4, 5}), ())], 2)
    assert two.driver.figures() == back | {"second_reduces": 0}
    part = lost_nodes("kept", [*events, (frozenset({2}), ())], 2)
    assert part.driver.figures() == back | {"second_reduces": 1}


@pytest.mark.parametrize("approximation", ["kept", "redone"])
def test_losses_in_consecutive_rounds_and_in_the_round_of_a_return(approximation: str) -> None:
    job = CheckedDescent("searched", approximation=approximation)
    job.until("gradient", 3)
    job.lose([0, 1])
    job.until("gradient", 4)
    job.lose([4])
    job.until("gradient", 5)
    assert job.queue == [([0, 1], 3), ([4], 4)]
    job.bring_back([0, 1])
    job.until("gradient", 6)  # the round that they are members of
    assert job.state.asked == {0, 1, 2, 3, 5}
    job.lose([2])
    if approximation == "redone":
        job.until("previous", 6)
        assert job.state.asked == {3, 5}, "0 and 1 are not in the stored gradient"
    job.until("direction", 6)
    assert job.queue == [([0, 1], 3), ([4], 4), ([2], 6)]
    assert [sorted(entry.partitions) for entry in job.state.standing] == [[4], [2]], "0 and 1 are in the sum"
    job.until("gradient", 7)
    assert job.queue == [([4], 4), ([2], 6)]
    assert job.state.redone == 3


def test_losses_in_a_round_and_when_it_is_done_again_are_at_the_same_model() -> None:
    job = CheckedDescent("constant", approximation="redone")
    job.until("gradient", 2)
    job.lose([1])
    job.until("previous", 2)
    job.until("gradient", 2)
    job.lose([2])
    job.until("direction", 2)
    assert job.queue == [([1], 2), ([2], 2)]
    assert job.state.redone == 2
    job.run_out()


def test_losses_during_the_second_reduce_are_approximated_together() -> None:
    job = CheckedDescent("constant", approximation="redone")
    job.until("gradient", 2)
    job.lose([1])
    job.until("previous", 2)
    job.lose([4])
    job.until("direction", 2)
    assert job.queue == [([1, 4], 2)]
    assert job.state.redone == 1
    job.run_out()


def test_the_loss_of_one_of_several_that_return_leaves_their_approximation() -> None:
    job = CheckedDescent("constant")
    job.until("gradient", 2)
    job.lose([2, 3])
    job.until("gradient", 4)
    job.bring_back([2, 3])
    job.until("gradient", 5)
    assert job.state.asked == EVERYONE
    job.lose([3])  # 2 may be in the sum already: the round is done again without both
    job.until("gradient", 6)
    assert job.state.contributors == {0, 1, 4, 5}
    assert job.queue == [([2, 3], 2)]
    assert job.state.second_reduces == 0
    job.bring_back([3])
    job.until("direction", 7)
    assert job.state.contributors == EVERYONE


def test_an_entry_returns_whole() -> None:
    job = CheckedDescent("constant")
    job.until("gradient", 2)
    job.lose([4, 5])
    job.until("gradient", 3)
    job.bring_back([4])
    job.until("direction", 4)
    assert job.state.contributors == {0, 1, 2, 3}
    assert job.queue == [([4, 5], 2)]
    job.bring_back([5])
    job.until("gradient", 6)
    assert job.state.contributors == EVERYONE
    assert job.queue == []


def test_a_loss_in_a_line_search_ends_it() -> None:
    job = CheckedDescent("searched")
    job.until("trial", 3)
    model = job.shared["weights"]
    job.lose([4, 5])
    job.until("gradient", 4)
    assert job.state.contributors == {0, 1, 2, 3}
    assert job.state.redone == 1
    assert np.array_equal(job.models[3], model), "the round is done again at the same model"


def test_a_loss_in_the_first_line_search_ends_it_too() -> None:
    job = CheckedDescent("searched")
    job.until("trial", 0)
    job.lose([4, 5])  # they are in no stored gradient yet
    job.until("gradient", 1)
    assert job.state.contributors == {0, 1, 2, 3}
    assert job.state.redone == 1
    assert job.queue == [([4], 0), ([5], 0)]


def test_a_loss_in_round_0_is_left_out_counted_and_logged() -> None:
    job = CheckedDescent("constant")
    job.lose([1, 4])
    job.until("gradient", 2)
    figures = {"redone_rounds": 0, "second_reduces": 0, "approximated": 0, "not_approximated": 2}
    assert job.driver.figures() == figures
    assert job.state.contributors == {0, 2, 3, 5}
    (remark,) = job.driver.remarks
    assert remark.startswith("round 0: partitions 1, 4 are away and were in no step yet: they are left out until")
    job.bring_back([4])  # each returns by itself
    job.until("direction", 3)
    assert job.state.contributors == {0, 2, 3, 4, 5}
    job.bring_back([1])
    job.until("direction", 4)
    assert job.state.contributors == EVERYONE


def test_the_queue_returns_first_in_first_out_an_entry_at_a_time() -> None:
    job = CheckedDescent("constant")
    for rounds, lost in ((2, [3, 4, 5]), (4, [1])):
        job.until("gradient", rounds)
        job.lose(lost)
    job.until("gradient", 6)
    assert [job.made.restarts(frozenset({1, 3, 4, 5}), free) for free in range(5)] == [
        (),
        (),
        (),
        (3, 4, 5),
        (3, 4, 5, 1),
    ]
    job.lose([2])  # it is in no entry before the round has ended
    assert job.made.restarts(frozenset(range(1, 6)), 2) == (), "it does not overtake an entry that is too large"
    assert job.made.restarts(frozenset(range(1, 6)), 4) == (3, 4, 5, 1)
    assert job.made.restarts(frozenset(range(1, 6)), 5) == (3, 4, 5, 1, 2)


def test_ignore_leaves_out_what_is_away() -> None:
    job = CheckedDescent("constant", missing="ignore")
    job.until("gradient", 2)
    job.lose([0, 1])
    job.until("gradient", 3)
    np.testing.assert_allclose(job.models[3], descended(job.models[2], [2, 3, 4, 5]), atol=1e-12)
    job.bring_back([0, 1])
    job.run_out()
    assert job.state.contributors == EVERYONE
    assert job.driver.end is not None
    assert job.driver.end[1] == "8 rounds; redone rounds: 0"


def test_stall_waits_for_what_is_away() -> None:
    job = CheckedDescent("constant", missing="stall")
    job.until("gradient", 2)
    job.lose([0, 1])
    job.run_out()
    assert not job.driver.absent
    assert job.state.rounds == 2, "the round waits for them"
    job.bring_back([0, 1])
    job.run_out()
    assert job.state.contributors == EVERYONE
    assert job.driver.end is not None
    assert job.driver.end[1] == "8 rounds; redone rounds: 0"
