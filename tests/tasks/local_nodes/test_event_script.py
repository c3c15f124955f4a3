"""Scripts of node events: read as written, refused by line."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.local_nodes.event_script import DRAIN_S, ScriptedEvent, read_script, there_after

TIERS = {"r1": "reliable", "t1": "transient", "t2": "transient"}


def read(tmp_path: Path, text: str, clocks: int | None = 50) -> tuple[ScriptedEvent, ...]:
    path = tmp_path / "events.csv"
    path.write_text(text)
    return read_script(path, TIERS, clocks)


def test_a_script_is_read_in_its_order(tmp_path: Path) -> None:
    events = read(
        tmp_path,
        "at,action,node,seconds\n# first a kill\nclock:3,kill,t1\n\nsecond:1.5, notice ,t2,30\nclock:3,join,t1\n"
        "second:9,drain,t1\n",
    )
    assert events == (
        ScriptedEvent(3, None, "kill", "t1"),
        ScriptedEvent(None, 1.5, "notice", "t2", 30.0),
        ScriptedEvent(3, None, "join", "t1"),
        ScriptedEvent(None, 9.0, "drain", "t1", DRAIN_S),
    )
    assert [event.at for event in events] == ["clock:3", "second:1.5", "clock:3", "second:9"]
    assert events[0].record() == {"at": "clock:3", "action": "kill", "node": "t1", "seconds": None}
    assert there_after(TIERS, events[:2]) == {"r1": "reliable"}
    assert there_after(TIERS, events[:3]) == {"r1": "reliable", "t1": "transient"}


def test_the_first_line_of_names_is_optional_and_may_order_the_columns(tmp_path: Path) -> None:
    assert read(tmp_path, "clock:0,kill,t2\n") == (ScriptedEvent(0, None, "kill", "t2"),)
    assert read(tmp_path, "node,at,action\nt2,clock:0,kill\n") == (ScriptedEvent(0, None, "kill", "t2"),)


def test_newcomers_without_a_name_get_the_next_ones(tmp_path: Path) -> None:
    events = read(tmp_path, "at,action,node,count\nclock:1,join,t4\nclock:2,join,,2\nclock:3,join\n")
    assert [event.node for event in events] == ["t4", "t3", "t5", "t6"]


def test_when_an_event_is_due() -> None:
    by_clock, by_second = ScriptedEvent(3, None, "kill", "t1"), ScriptedEvent(None, 2.0, "kill", "t1")
    assert [by_clock.due(clock, 99.0) for clock in (2, 3, 4)] == [False, True, True]
    assert [by_second.due(99, elapsed_s) for elapsed_s in (1.9, 2.0)] == [False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"events\.csv: has no events; write lines of at,action,node, or leave it out"),
        ("at,action,node\n", r"events\.csv: has no events"),
        ("at,what,node\nclock:1,kill,t1\n", r"line 1: column 'what'; the columns are at, action"),
        ("clock:1,kill,t1\nclock:2,hit,t2\n", r"line 2: action 'hit' is unknown; there are join, notice, kill, drain"),
        ("# note\n\n10,kill,t1\n", r"line 3: at '10' is not a time; write clock:N or second:S"),
        ("clock:-1,kill,t1\n", r"line 1: at 'clock:-1' is not a time"),
        ("clock:1.5,kill,t1\n", r"line 1: at 'clock:1\.5' is not a time"),
        ("second:soon,kill,t1\n", r"line 1: at 'second:soon' is not a time"),
        ("second:inf,kill,t1\n", r"line 1: at 'second:inf' is not a time"),
        ("clock:50,kill,t1\n", r"line 1: clock:50 never comes: the job ends at clock 50; give an earlier one"),
        ("clock:9,kill,t1\nclock:8,kill,t2\n", r"line 2: clock:8 comes after clock:9; put the lines in order of time"),
        ("second:9,kill,t1\nsecond:8,kill,t2\n", r"line 2: second:8 comes after second:9; put"),
        ("clock:1,kill,t7\n", r"line 1: node t7 does not exist at that time; there are r1, t1, t2"),
        ("clock:1,kill,t1\nclock:2,kill,t1\n", r"line 2: node t1 does not exist at that time; there are r1, t2"),
        ("clock:1,kill\n", r"line 1: a kill needs a node's name"),
        ("clock:1,kill,t1,,2\n", r"line 1: count 2: only a join has one"),
        ("clock:1,kill,t1,5\n", r"line 1: seconds 5: only notice and drain have them; leave it empty"),
        ("clock:1,notice,t1\n", r"line 1: seconds '': a notice needs a number of seconds from 0, as in 30"),
        ("clock:1,notice,t1,-1\n", r"line 1: seconds '-1': a notice needs"),
        ("clock:1,drain,t1,nan\n", r"line 1: seconds 'nan': a drain needs"),
        ("clock:1,notice,r1,5\n", r"line 1: node r1 is reliable and serves the model: it can only be killed"),
        ("clock:1,join,t1\n", r"line 1: node t1 exists already; give another name, or none"),
        ("clock:1,notice,t1,5\nclock:2,join,t1\n", r"line 2: node t1 may still be leaving; give the new node another"),
        ("clock:1,kill,r1\nclock:2,join,r1\n", r"line 2: node r1 was a reliable one"),
        ("clock:1,join,T 9\n", r"line 1: node 'T 9': want up to 40 lower-case letters"),
        ("clock:1,join,controller\n", r"line 1: node 'controller': want"),
        ("clock:1,join,t9,,2\n", r"line 1: a join has a node's name or a count, not both"),
        ("clock:1,join,,,0\n", r"line 1: count '0': want a number from 1 to 64"),
        ("clock:1,kill,t1,,,x\n", r"line 1: has 6 cells; the columns are"),
        ('clock:1,kill,"t1\n', r"line 1: is not CSV"),
    ],
)
def test_what_cannot_be_is_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, text)
    assert re.search(says, str(refused.value)), refused.value
    assert str(refused.value).startswith(str(tmp_path / "events.csv"))


def test_a_kill_may_come_before_a_notice_has_run_out(tmp_path: Path) -> None:
    events = read(tmp_path, "clock:1,notice,t1,60\nclock:2,kill,t1\nclock:3,join,t1\n")
    assert [event.action for event in events] == ["notice", "kill", "join"]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        read_script(tmp_path / "none.csv", TIERS, None)


_CELL = st.sampled_from(
    [
        *(
            "",
            " ",
            "clock:3",
            "clock:9",
            "second:1.5",
            "second:nan",
            "second:1e309",
            "clock:" + "9" * 5000,
            "clock:-1",
            "clock:\u0663",
        ),
        *(
            "join",
            "kill",
            "drain",
            "notice",
            "r1",
            "t1",
            "t2",
            "t9",
            "controller",
            "5",
            "inf",
            "-1",
            "64",
            "9" * 5000,
            "a b",
            '"',
        ),
        *("#", "at", "action", "node", "seconds", "count", "\u0661", "1_0"),
    ]
) | st.text(st.characters(codec="utf-8"), max_size=4)
_ROW = st.lists(_CELL, max_size=6) | st.tuples(
    st.sampled_from(["clock:1", "clock:3", "second:2"]),
    st.sampled_from(["join", "kill", "drain", "notice"]),
    st.sampled_from(["", "t1", "t2", "t9", "r1"]),
    _CELL,
)


def _events_or_one_line(path: Path, clocks: int | None) -> tuple[ScriptedEvent, ...]:
    try:
        return read_script(path, TIERS, clocks)
    except InputError as error:
        refusal = str(error)
    assert refusal.startswith(f"{path}: ")
    assert "\n" not in refusal
    return ()


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(rows=st.lists(_ROW, max_size=4), clocks=st.sampled_from([None, 50]))
def test_any_script_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], clocks: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes("\n".join(",".join(row) for row in rows).encode())
    for event in _events_or_one_line(path, clocks):
        assert event.due(10**9, 1e308) or event.clock is not None
        assert event.record()["node"] == event.node
