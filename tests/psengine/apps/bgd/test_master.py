"""Algorithm 2: each partition counts once in each step, whatever vanishes and returns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.apps.bgd.directions import Lbfgs, SteepestDescent
from proteus_spot.psengine.apps.bgd.steps import FixedStep, SearchedStep
from tests.psengine.apps.bgd.descents import Descent

COUNT = 6
SOME = st.frozensets(st.integers(0, COUNT - 1), max_size=3)
#: What happens at each request: who vanishes during it, and who returned before it.
EVENTS = st.lists(st.tuples(st.one_of(st.just(frozenset[int]()), SOME), SOME), max_size=25)


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.sampled_from(["kept", "redone"]), st.booleans(), st.booleans())
def test_each_step_counts_every_partition_once(
    events: list[tuple[frozenset[int], frozenset[int]]], approximation: str, searched: bool, lbfgs: bool
) -> None:
    run = Descent(
        COUNT,
        SearchedStep() if searched else FixedStep(1.0),
        Lbfgs() if lbfgs and searched else SteepestDescent(),
        approximation=approximation,
    )
    for vanishing, returning in events:
        run.cluster.bring_up(returning)
        run.answer(vanishing)  # checks losses and steps
    run.cluster.bring_up(range(COUNT))
    before = run.master.rounds
    for _ in range(200):
        if run.master.rounds > before + 1 or run.answer() is None:
            break
    assert run.master.rounds > before + 1 or run.master.finished
    assert not run.master.roster.queue
    if searched:
        for step, model in zip(run.steps, run.models[1:], strict=True):
            assert run.objective(step, model) < step.objective


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SOME, SOME), max_size=12))
def test_kept_sums_and_a_second_reduce_agree(events: list[tuple[frozenset[int], frozenset[int]]]) -> None:
    runs = [Descent(COUNT, FixedStep(1.0), approximation=name) for name in ("kept", "redone")]
    for run in runs:
        for vanishing, returning in events:
            run.cluster.bring_up(returning)
            rounds = run.master.rounds + run.master.redone_rounds
            lost: frozenset[int] = vanishing  # during the gradient; what follows it within the round is not disturbed
            while run.master.rounds + run.master.redone_rounds == rounds or run.master.is_approximating:
                if run.answer(lost) is None:
                    break
                lost = frozenset()
    kept, redone = runs
    assert [entry.partitions for entry in kept.losses] == [entry.partitions for entry in redone.losses]
    assert kept.master.rounds == redone.master.rounds
    assert kept.master.redone_rounds == redone.master.redone_rounds
    np.testing.assert_allclose(kept.master.model, redone.master.model, atol=1e-10)


def test_a_leaf_that_vanishes_costs_no_second_reduce_and_an_inner_node_does() -> None:
    kinds = []
    for node in (COUNT - 1, 0):
        run = Descent(COUNT, FixedStep(1.0))
        run.until(lambda run=run: run.master.rounds == 2)
        run.answer([node])
        run.until(lambda run=run: run.master.rounds == 3)
        kinds.append([request.kind for request in run.requests[2:]])
        assert run.master.redone_rounds == 1
    assert kinds == [
        ["gradient", "kept", "gradient"],
        ["gradient", "kept", "previous", "gradient"],
    ]


def test_losses_in_consecutive_rounds_are_both_at_the_model_before() -> None:
    run = Descent(COUNT, FixedStep(1.0), approximation="redone")
    run.until(lambda: run.master.rounds == 2)
    run.answer([1])
    run.until(lambda: len(run.losses) == 1)
    run.answer([2])  # in the round that is done again
    run.until(lambda: len(run.losses) == 2)
    assert [entry.round_number for entry in run.losses] == [2, 2]
    run.until(lambda: run.master.rounds == 3)
    run.answer([3])
    run.until(lambda: run.master.rounds == 4)
    assert [sorted(entry.partitions) for entry in run.master.roster.queue] == [[1], [2], [3]]
    assert run.master.redone_rounds == 3


def test_losses_during_the_second_reduce_are_approximated_together() -> None:
    run = Descent(COUNT, FixedStep(1.0), approximation="redone")
    run.until(lambda: run.master.rounds == 2)
    run.answer([1])
    run.answer([4])  # during lines 9 to 12
    assert [sorted(entry.partitions) for entry in run.master.roster.queue] == [[1, 4]]
    assert run.master.redone_rounds == 1


def test_an_entry_returns_whole() -> None:
    run = Descent(COUNT, FixedStep(1.0))
    run.until(lambda: run.master.rounds == 2)
    run.answer([4, 5])
    run.until(lambda: run.master.rounds == 3)
    run.cluster.bring_up([4])
    run.until(lambda: run.master.rounds == 4)
    assert 4 not in run.steps[-1].contributors
    assert len(run.steps[-1].standing) == 1
    run.cluster.bring_up([5])
    run.answer([5])  # vanishes again at once: the other is in the sum, so the round is done again without it
    run.until(lambda: run.master.rounds == 5)
    assert len(run.losses) == 1
    assert 4 not in run.steps[-1].contributors
    run.cluster.bring_up([5])
    run.until(lambda: run.master.rounds == 6)
    assert run.steps[-1].contributors == frozenset(range(COUNT))
    assert not run.master.roster.queue


def test_a_loss_in_the_round_of_a_return_leaves_the_approximation() -> None:
    run = Descent(COUNT, FixedStep(1.0), approximation="redone")
    run.until(lambda: run.master.rounds == 2)
    run.answer([5])
    run.until(lambda: run.master.rounds == 4)
    run.cluster.bring_up([5])
    run.answer([0])
    previous = run.requests[-1]
    assert 5 in previous.partitions
    request = run.answer()
    assert request is not None
    assert request.kind == "previous"
    assert request.partitions == {1, 2, 3, 4}  # 5 is not in the stored gradient
    assert [sorted(entry.partitions) for entry in run.master.roster.queue] == [[5], [0]]
    run.until(lambda: run.master.rounds == 5)
    assert [sorted(entry.partitions) for entry in run.master.roster.queue] == [[0]]


def test_a_loss_in_round_0_is_left_out_and_logged() -> None:
    run = Descent(COUNT, FixedStep(1.0))
    run.answer([2])
    assert run.master.rounds == 1
    assert run.master.redone_rounds == 0
    assert [(sorted(entry.partitions), entry.gradient) for entry in run.losses] == [([2], None)]
    run.cluster.bring_up([2])
    run.until(lambda: run.master.rounds == 2)
    assert run.steps[-1].contributors == frozenset(range(COUNT))


def test_a_loss_in_a_line_search_ends_it() -> None:
    run = Descent(COUNT)
    run.until(lambda: run.master.rounds == 3 and run.master.request(run.cluster.present).kind == "trial")
    model = run.master.model
    run.answer([1])
    assert run.master.redone_rounds == 1
    run.until(lambda: run.master.rounds == 4)
    assert run.models[3] is model
    assert run.steps[-1].contributors == frozenset(range(COUNT)) - {1}


def test_the_queue_is_restarted_in_order_when_enough_nodes_are_free() -> None:
    run = Descent(COUNT, FixedStep(1.0))
    run.until(lambda: run.master.rounds == 1)
    for vanishing in ([1, 2, 3], [4]):
        run.answer(vanishing)
        run.until(lambda: len(run.master.roster.queue) > 0)
        run.until(lambda: run.master.request(run.cluster.present).kind == "gradient")
    run.until(lambda: run.master.rounds == 2)
    restarts = [run.master.restarts(run.cluster.present, free) for free in range(5)]
    assert restarts == [(), (), (), (1, 2, 3), (1, 2, 3, 4)]


@pytest.mark.parametrize("missing", ["ignore", "stall"])
def test_baselines_leave_out_or_wait(missing: str) -> None:
    run = Descent(COUNT, FixedStep(1.0), missing=missing)
    run.until(lambda: run.master.rounds == 2)
    run.answer([1, 2])
    if missing == "stall":
        assert run.answer() is None
        assert (run.master.rounds, run.master.redone_rounds) == (2, 1)
    else:
        assert (run.master.rounds, run.master.redone_rounds) == (3, 0)
        np.testing.assert_allclose(
            run.steps[2].gradient, run.gradient([0, 3, 4, 5], run.models[2]) + 0.01 * run.models[2], atol=1e-14
        )
    run.cluster.bring_up([1, 2])
    run.until(lambda: run.master.rounds == 4)
    assert run.steps[-1].contributors == frozenset(range(COUNT))


def test_lbfgs_pairs_only_rounds_with_the_same_contributors() -> None:
    rule = Lbfgs()
    model, gradient = np.zeros(2), np.array([1.0, 2.0])
    rule.direction(model, gradient, "all")
    rule.direction(model + 1.0, gradient + 1.0, "fewer")
    assert not rule.is_scaled()
    rule.direction(model + 2.0, gradient + 3.0, "fewer")
    assert rule.is_scaled()


def test_lbfgs_waits_at_the_minimum_of_its_approximation_and_goes_on_when_all_are_back() -> None:
    run = Descent(COUNT, SearchedStep(), Lbfgs())
    run.until(lambda: run.master.rounds == 3)
    run.answer([0, 1])
    while run.answer() is not None:
        pass
    assert not run.master.finished
    run.cluster.bring_up([0, 1])
    while run.answer() is not None:
        pass
    assert run.master.finished
    assert np.linalg.norm(run.gradient(range(COUNT), run.master.model) + 0.01 * run.master.model) < 1e-6
