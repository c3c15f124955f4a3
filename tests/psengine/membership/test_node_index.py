"""The nodes by name, address and state, beside a list that is searched."""

from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.membership.node_index import GONE_REMEMBERED
from proteus_spot.psengine.membership.node_record import NodeRecord

NAMES = ("a", "b", "c", "d")
STATES = ("joining", "ready", "leaving", "unfit", "draining", "drained")
steps = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(NAMES), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.sampled_from(STATES), st.sampled_from(NAMES), st.just(0)),
)


@given(st.lists(steps, max_size=30))
def test_the_index_finds_what_a_search_finds(course: list[tuple[str, str, int]]) -> None:
    members, listed = Membership(), dict[str, NodeRecord]()
    for what, name, process in course:
        if what == "join":
            listed.pop(name, None)
            listed[name] = members.join(name, f"{name}{process}", "transient", 1)
        elif name in listed and what == "lose":
            members.lose(listed[name])
        elif name in listed and not listed[name].gone:
            listed[name].state = what  # type: ignore[assignment]
        assert list(members.nodes.items()) == list(listed.items())
        for states in (("ready",), ("ready", "leaving"), ("lost", "drained")):
            assert members.in_state(*states) == [node for node in listed.values() if node.state in states]
        assert {*members.present} == {node.address for node in listed.values() if not node.gone}
        for node in listed.values():
            assert members.at(node.address) is (None if node.gone else node)


def test_changes_are_handed_out_once() -> None:
    members = Membership()
    first, second = (members.join(name, f"tcp://{name}", "transient", 1) for name in "ab")
    assert list(members.index.take_changed().values()) == [first, second]
    second.state = "ready"
    second.state = "ready"
    first.noticed = True
    assert list(members.index.take_changed()) == ["tcp://a", "tcp://b"]
    assert members.index.take_changed() == {}
    again = members.join("a", "tcp://a2", "transient", 1)
    assert members.index.take_changed() == {"tcp://a2": again, "tcp://a": None}
    first.state = "lost"
    assert members.index.take_changed() == {}, "it was replaced"


def test_nodes_that_are_gone_for_long_are_forgotten() -> None:
    members = Membership()
    stays = members.join("stays", "tcp://stays", "reliable", 1)
    for number in range(2 * GONE_REMEMBERED):
        members.lose(members.join(f"n{number}", f"tcp://n{number}", "transient", 1))
    assert len(members.nodes) == GONE_REMEMBERED + 1
    assert next(iter(members.nodes.values())) is stays
    assert f"n{2 * GONE_REMEMBERED - 1}" in members.nodes
    assert members.in_state("lost")[0].name == f"n{GONE_REMEMBERED}"
