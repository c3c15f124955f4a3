"""How fast types work: pooled over jobs of any scale, towards the truth with more nodes, whatever one node says."""

from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.facts.rates import LEAST_TASKS, MOST, NodeWork, TypeWork, speeds_by_application, speeds_of
from tests.support.markets import PROPERTY

A, B, C = "c4.large", "m4.large", "r3.large"


def work(
    kind: str, *rates: float, job: str = "job", at_s: int = 100, tasks: int = LEAST_TASKS, **names: str
) -> TypeWork:
    """Return what nodes of a type did, each at a rate."""
    nodes = {f"{job}-{kind}-{at}": NodeWork(tasks, rate * 50.0, 50.0) for at, rate in enumerate(rates)}
    return TypeWork(at_s, job, names.get("app", "mlr"), names.get("unit", "vcpu"), kind, nodes)


def ratio(*works: TypeWork) -> float:
    """Return how many times as fast B works as A."""
    found = speeds_of(works)
    return found[B].value / found[A].value


def test_a_type_alone_says_nothing_and_neither_do_a_few_tasks() -> None:
    assert speeds_of([]) == {}
    assert speeds_of([work(A, 5.0, 5.0), work(B, 10.0, job="other")]) == {}
    assert speeds_of([work(A, 5.0), work(B, 10.0, tasks=LEAST_TASKS - 1)]) == {}


def test_the_speed_of_a_type_is_between_the_usual_and_what_was_measured() -> None:
    found = speeds_of([work(A, 5.0, at_s=100), work(B, 10.0, 10.0, at_s=90)])
    assert found[A].value * found[B].value == pytest.approx(1.0)
    assert 1.2 < ratio(work(A, 5.0), work(B, 10.0, 10.0)) < 2.0
    assert (found[A].nodes, found[A].at_s, found[B].nodes, found[B].at_s) == (1, 100, 2, 90)
    assert found[B].in_words(690) == f"{found[B].value:.2f} times the usual speed (2 nodes, 10 min ago)"


@PROPERTY
@given(truth=st.floats(0.2, 5.0), nodes=st.integers(1, 20), scale=st.floats(0.01, 100.0))
def test_more_nodes_approach_the_truth_at_any_scale(truth: float, nodes: int, scale: float) -> None:
    def error(count: int) -> float:
        works = [work(A, *[scale] * count), work(B, *[scale * truth] * count)]
        return abs(log(ratio(*works)) - log(truth))

    assert error(4 * nodes) <= error(nodes) + 1e-9
    assert error(200) <= abs(log(truth)) * 0.01 + 1e-9


@PROPERTY
@given(
    cells=st.lists(
        st.tuples(
            st.sampled_from([A, B, C]), st.sampled_from("xyz"), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5)
        ),
        max_size=8,
        unique_by=lambda cell: cell[:2],
    ),
    random=st.randoms(use_true_random=False),
)
def test_the_order_of_what_was_seen_does_not_matter(cells: list[tuple[str, str, list[float]]], random: Random) -> None:
    works = [work(kind, *rates, job=job) for kind, job, rates in cells]
    before = speeds_of(works)
    random.shuffle(works)
    assert speeds_of(works) == before
    assert all(1 / MOST - 1e-9 <= each.value <= MOST + 1e-9 for each in before.values())


@PROPERTY
@given(strange=st.floats(1e-6, 1e6), nodes=st.integers(5, 30))
def test_one_strange_node_moves_a_type_by_little(strange: float, nodes: int) -> None:
    even = ratio(work(A, *[1.0] * nodes), work(B, *[1.0] * nodes))
    assert even == pytest.approx(1.0)
    assert ratio(work(A, *[1.0] * nodes), work(B, strange, *[1.0] * (nodes - 1))) == pytest.approx(1.0)
    alone = ratio(work(A, *[1.0] * nodes), work(B, strange))
    assert exp(-log(MOST)) <= alone <= MOST, "alone, it counts next to the prior, and within limits"


def test_types_are_compared_across_jobs_of_other_scales() -> None:
    """A with B in one job, B with C in another on a hundredth of the data: A with C follows."""
    many = 50
    works = [
        work(A, *[1.0] * many), work(B, *[2.0] * many),
        work(B, *[200.0] * many, job="large"), work(C, *[100.0] * many, job="large"),
    ]  # fmt: skip
    found = speeds_of(works)
    assert found[A].value == pytest.approx(found[C].value, rel=0.01)
    assert found[B].value / found[A].value == pytest.approx(2.0, rel=0.05)


def test_applications_and_units_are_measured_apart() -> None:
    works = [work(A, 1.0), work(B, 2.0), work(A, 3.0, job="g", unit="gpu"), work(B, 1.0, job="g", unit="gpu")]
    found = speeds_by_application(works)
    assert sorted(found) == ["mlr", "mlr by gpu"]
    assert found["mlr"][B].value > 1 > found["mlr by gpu"][B].value
