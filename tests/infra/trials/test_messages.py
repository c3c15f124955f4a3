"""Whatever a process writes, its supervisor takes only messages that fit."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from proteus_spot.infra.trials.messages import Message, StepDurations, parse_message

GOOD = Message(
    "saved", 3, folder="000000003-000002", size=10, seconds=0.5, times=StepDurations().add(2.0).add(0.5).add(1.0)
)
_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(some.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        Message("step", 1),
        Message("report", 3, -0.25),
        Message("report", 3, None),
        Message("ended", 10, how="paused"),
        Message("failed", why="no luck"),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert parse_message(message.to_line(), 10) == message


def _line(**changes: Any) -> bytes:
    return json.dumps({**asdict(GOOD), **changes}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 50_000,
        _line(kind="other"),
        _line(kind=None),
        _line(step=11),
        _line(step=-1),
        _line(step=True),
        _line(step=2.0),
        _line(kind="report", step=0),
        _line(value="1"),
        _line(value=float("nan")),
        _line(folder="../../etc"),
        _line(folder="000000003-000002/.."),
        _line(size=-1),
        _line(seconds=float("inf")),
        _line(how="later"),
        _line(times=None),
        _line(times={"count": 1}),
    ],
)
def test_what_does_not_fit_is_no_message(line: bytes) -> None:
    assert parse_message(line, 10) is None


@given(some.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_break_the_reader(line: bytes) -> None:
    parse_message(line, 10)


@given(some.sampled_from(sorted(asdict(GOOD))), _JSON)
def test_no_value_of_a_field_breaks_the_reader(name: str, value: Any) -> None:
    message = parse_message(_line(**{name: value}), 10)
    assert message is None or (0 <= message.step <= 10 and "\n" not in message.why and "/" not in message.folder)


def test_the_first_step_counts_not_for_the_mean() -> None:
    assert StepDurations().mean_s is None
    assert StepDurations().add(5.0).mean_s == 5.0
    assert GOOD.times.mean_s == 0.75
    assert GOOD.times.longest_s == 2.0
    assert StepDurations().add(-1.0).total_s == 0.0, "a clock that was set back"
