"""The tree reports exactly who contributed, and what it keeps is what they sent."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.apps.bgd.reduction_tree import MASTER, ReductionTree

COUNT = 11
NODES = st.frozensets(st.integers(0, COUNT - 1))


def contributions(nodes: frozenset[int], seed: int = 0) -> dict[int, np.ndarray]:
    values = np.random.default_rng(seed).standard_normal((COUNT, 3))
    return {node: values[node] for node in nodes}


def total(nodes: frozenset[int]) -> np.ndarray:
    return sum(contributions(nodes).values(), np.zeros(3))


@settings(max_examples=200, deadline=None)
@given(NODES, NODES, NODES)
def test_any_missing_nodes_leave_the_sum_of_the_rest(
    members: frozenset[int], missing: frozenset[int], silent: frozenset[int]
) -> None:
    tree = ReductionTree()
    tree.build(members)
    present = members - missing
    reduced = tree.reduce(present, contributions(present - silent))
    if not present - silent:
        assert reduced is None
        return
    assert reduced is not None
    assert reduced.partitions == present - silent
    np.testing.assert_allclose(reduced.total, total(present - silent), atol=1e-12)
    assert set(tree.parents(present)) == present
    assert set(tree.parents(present).values()) <= present | {MASTER}


@settings(max_examples=200, deadline=None)
@given(NODES, NODES, NODES)
def test_kept_sums_are_those_of_exactly_the_vanished(
    silent: frozenset[int], first: frozenset[int], second: frozenset[int]
) -> None:
    tree, everyone = ReductionTree(), frozenset(range(COUNT))
    tree.build(everyone)
    contributed = everyone - silent
    tree.reduce(everyone, contributions(contributed))
    tree.commit()
    alive = everyone - first
    tree.reduce(alive, contributions(alive, seed=1))  # voided: what is kept stays
    tree.build(alive)
    for vanished, present in ((first, alive), (second, alive - second)):
        tree.build(present)
        kept = tree.kept_sum(vanished & contributed)
        if kept is not None:
            np.testing.assert_allclose(kept, total(vanished & contributed), atol=1e-12)


def test_leaves_and_whole_subtrees_are_kept_and_an_inner_node_alone_is_not() -> None:
    everyone = frozenset(range(7))  # 0 above 1 and 3; 1 above 2; 3 above 4 and 5; 5 above 6
    for vanished, is_kept in (({2}, True), ({3, 4, 5, 6}, True), ({2, 5, 6}, True), ({1}, False), ({3, 4}, False)):
        tree = ReductionTree()
        tree.build(everyone)
        tree.reduce(everyone, contributions(everyone))
        assert tree.kept_sum(vanished) is None  # no step yet
        tree.commit()
        tree.reduce(everyone - vanished, contributions(everyone - vanished))
        assert (tree.kept_sum(vanished) is not None) == is_kept, vanished


def test_children_of_a_missing_node_have_another_parent() -> None:
    tree = ReductionTree()
    tree.build(range(7))
    assert tree.parents(range(7)) == {0: MASTER, 1: 0, 2: 1, 3: 0, 4: 3, 5: 3, 6: 5}
    assert tree.parents([0, 2, 4, 6]) == {0: MASTER, 2: 0, 4: 0, 6: 4}
    assert tree.parents([3, 5]) == {3: MASTER, 5: 3}
