"""Output of `proteus train`: lines without a terminal, a screen on one, and a table of figures at the end."""

import io
from typing import Any

import pytest
from rich.console import Console

from proteus_spot.flows.terminal.train_view import (
    LINE_EVERY_S,
    TrainingMoment,
    bars,
    closing_table,
    display,
    event_log_table,
    line,
    screen,
)
from proteus_spot.tasks.local_nodes.explanations import Line


def node(name: str, state: str, gone: bool = False) -> dict[str, Any]:
    return {"name": name, "tier": "transient", "state": state, "gone": gone, "partitions": [1, 2], "running": 1}


STATUS = {
    "state": "running",
    "clock": 12,
    "clocks": 50,
    "elapsed_s": 61.2,
    "losses": [[11, 0.6], [12, 0.51234]],
    "seconds_per_clock": 0.03125,
    "recent_seconds": [0.01, 0.02, 0.04],
    "metrics": [[10, {"accuracy": 0.875}]],
    "bytes_moved": {"read": 1_000_000, "push": 250_000},
    "stage": 2,
    "shards": [{"shard": 0, "node": "t1", "backup": "r1"}, {"shard": 1, "node": "t1", "backup": "r1"}],
    "reason": "",
    "nodes": [node("r1", "ready"), node("t1", "ready"), node("t2", "lost", gone=True)],
}
NOTHING_YET = {**STATUS, "clock": 0, "clocks": None, "elapsed_s": None, "losses": [], "seconds_per_clock": None}
NOTHING_YET |= {"recent_seconds": [], "metrics": []}
FIGURES = {
    "job": "storm",
    "state": "finished",
    "clocks": 50,
    "seconds": 2.5,
    "losses": [[50, 0.25]],
    "metrics": {"accuracy": 0.9722},
    "went_back": [{"clock": 17, "reason": "node t1 is gone"}],
    "repeated_micro_tasks": 3,
    "lost_micro_tasks": 0,
    "bytes_moved": {"read": 1_000, "push": 3_000_000, "input": 20_000, "copy": 5, "model": 0},
    "stalls": [
        {"event": "loss", "stall_ms": 3.25},
        {"event": "join", "stall_ms": None},
        {"event": "loss", "stall_ms": 12.0},
    ],
    "releases": [{"node": "t1", "seconds": 0.5}, {"node": "t2", "seconds": 2.25}],
    "events": [{}, {}],
}


def shown(item: object) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(item)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_moment_fits_one_line() -> None:
    text = line(TrainingMoment("storm", STATUS))
    assert "\n" not in text
    for part in ("0:01:01", "running", "12/50", "loss 0.5123", "s/clock 0.0312", "stage 2", "nodes 2 ready, 1 lost"):
        assert part in text


def test_the_end_says_what_is_waited_for() -> None:
    saving = {**STATUS, "reason": "saving the model"}
    assert line(TrainingMoment("storm", saving)).endswith("nodes 2 ready, 1 lost  saving the model")


def test_passes_stand_beside_clocks_where_they_are_counted() -> None:
    counted = {**STATUS, "passes_done": 2.5, "passes": 10}
    for text in (line(TrainingMoment("storm", counted)), shown(screen(TrainingMoment("storm", counted)))):
        assert "12/50  pass 2.5/10  " in text
    assert "pass 2.5  " in line(TrainingMoment("storm", {**counted, "passes": None}))
    assert "pass" not in line(TrainingMoment("storm", {**counted, "passes_done": None}))
    assert "passes over the data" in shown(closing_table({**FIGURES, "passes": 2.5}))
    assert "passes" not in shown(closing_table({**FIGURES, "passes": None}))


def test_a_moment_before_the_first_clock() -> None:
    text = line(TrainingMoment("storm", {**NOTHING_YET, "nodes": []}))
    for part in ("0:00:00", "clock         0", "loss -", "s/clock -", "nodes none"):
        assert part in text


def test_a_screen_has_every_node_and_what_happened_last() -> None:
    text = shown(screen(TrainingMoment("storm", STATUS, "clock 10: kill t2")))
    for part in ("storm", "stage 2", "clock 12/50", "r1", "t2", "lost", "clock 10: kill t2"):
        assert part in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip().startswith(("r1", "t1"))}
    assert rows == {"r1": ["transient", "ready", "2", "1", "0-1"], "t1": ["transient", "ready", "2", "1", "0-1"]}
    header = next(line for line in text.splitlines() if "serves" in line)
    t1 = next(line for line in text.splitlines() if line.strip().startswith("t1"))
    assert t1.rstrip().rindex("0-1") < header.index("keeps"), "t1 serves, and keeps nothing"
    for part in ("accuracy 0.8750 (clock 10)", "moved 1.25 MB", "▃▅█"):
        assert part in text
    assert "held out" in shown(screen(TrainingMoment("storm", NOTHING_YET)))
    assert "no node is left" in shown(
        screen(TrainingMoment("storm", {**STATUS, "reason": "no node is left to work"}, "x"))
    )


def test_a_story_is_a_line_each() -> None:
    lines = [Line(0.0, 0, "t1 joined"), Line(12.3456, 40, "t1 is gone: [killed]")]
    text = shown(event_log_table("node t1", lines))
    assert [row.rstrip().split(maxsplit=2) for row in text.splitlines() if "t1 " in row and "node" not in row] == [
        ["0", "0.000", "t1 joined"],
        ["40", "12.346", "t1 is gone: [killed]"],
    ]


def test_bars() -> None:
    assert bars([]) == ""
    assert bars([0.0, 0.0]) == "▁▁"
    assert bars([1.0, 8.0]) == "▂█"


def test_without_a_terminal_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    show = display(quiet=True)
    for now_s in (0.0, LINE_EVERY_S / 2, LINE_EVERY_S):
        show.show(TrainingMoment("storm", STATUS), now_s)
    show.close()
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("clock") == 4  # two lines, each with the clock and the seconds of one


def test_the_closing_table() -> None:
    text = shown(closing_table(FIGURES))
    assert "all went back" in text
    for part in (
        "3.02 MB: push 3 MB, input 20 kB, read 1 kB",
        "by a loss",
        "12.0 ms",
        "by a join",
        "2.25 s (t2), of 2",
    ):
        assert part in text
    for part in ("storm: finished", "50", "2.50", "0.0500", "0.2500", "held-out accuracy", "0.9722", "3 / 0"):
        assert part in text
    for odd in ({"clocks": 0, "losses": [], "metrics": None}, {"losses": [[50, None]], "metrics": {"accuracy": None}}):
        assert " - " in shown(closing_table({**FIGURES, **odd}))
