"""The tree of nodes has one root and no circle, and is as deep as the tree of the partitions at most."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.tables.node_tree import parents


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=1, max_size=40))
def test_every_node_reaches_the_one_root(owners: list[int | None]) -> None:
    found = parents(owners)
    nodes = {node for node in owners if node is not None}
    assert found.keys() == nodes
    roots = [node for node, parent in found.items() if parent is None]
    assert len(roots) == bool(nodes)
    for node in nodes:
        steps, at = 0, node
        while (parent := found[at]) is not None:
            assert owners.index(parent) < owners.index(at), "a parent begins earlier: no circle"
            steps, at = steps + 1, parent
        assert steps <= (len(owners) - 1).bit_length()


def test_equal_runs_are_halved() -> None:
    owners = [partition // 2 for partition in range(16)]
    assert parents(owners) == {0: None, 1: 0, 2: 0, 3: 2, 4: 0, 5: 4, 6: 4, 7: 6}
    assert parents([None if node in (0, 6) else node for node in owners]) == {1: None, 2: 1, 3: 2, 4: 1, 5: 4, 7: 4}


def test_a_parent_has_what_its_childs_first_sum_lacks() -> None:
    """Of eight partitions in runs of three: [6, 8) and [4, 6) make [4, 8) at the node that has 4."""
    assert parents([0, 0, 0, 1, 1, 1, 2, 2]) == {0: None, 1: 0, 2: 1}
