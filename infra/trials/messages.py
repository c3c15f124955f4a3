"""The messages between a trial's process and its supervisor, as lines of JSON; what arrives is checked.

The process runs the user's code, which may do anything, so that its supervisor believes nothing that does not fit.
"""

import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from proteus_spot.infra.trials.trial_documents import one_line

#: Maximum bytes of a line.
MAX_LINE = 64 * 1024
_FOLDER = re.compile(r"\d{9}-\d{6}")


@dataclass(frozen=True, slots=True)
class StepDurations:
    """Real seconds of the steps that a process has completed: their number, sum, first and longest.

    `squares_s2` is the sum of the squares of all but the first.
    """

    count: int = 0
    total_s: float = 0.0
    first_s: float = 0.0
    longest_s: float = 0.0
    squares_s2: float = 0.0

    def add(self, seconds: float) -> "StepDurations":
        """Return the times with one more step."""
        seconds = max(0.0, seconds)
        first_s = self.first_s if self.count else seconds
        squares_s2 = self.squares_s2 + (seconds**2 if self.count else 0.0)
        return StepDurations(self.count + 1, self.total_s + seconds, first_s, max(self.longest_s, seconds), squares_s2)

    @property
    def mean_s(self) -> float | None:
        """Mean seconds of a step, without the first one if there are more: it compiles and warms up."""
        if self.count == 0:
            return None
        return self.total_s if self.count == 1 else (self.total_s - self.first_s) / (self.count - 1)

    @property
    def cov(self) -> float | None:
        """Coefficient of variation of the steps after the first; None before there are three."""
        if self.count < 3 or not (mean_s := self.mean_s):
            return None
        variance = self.squares_s2 / (self.count - 1) - mean_s**2
        return math.sqrt(max(variance, 0.0)) / mean_s


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a trial's process.

    Attributes
    ----------
    kind : `step` (it begins), `report`, `saved`, `ended` or `failed`.
    value : the metric of a report; None if it is not finite.
    folder, size : name and bytes of a saved state.
    seconds : real seconds that saving took.
    how : of `ended`: `finished` or `paused`.
    why : of `failed`, on one line.
    times : the steps so far.
    """

    kind: Literal["step", "report", "saved", "ended", "failed"]
    step: int = 0
    value: float | None = None
    folder: str = ""
    size: int = 0
    seconds: float = 0.0
    how: Literal["finished", "paused"] = "finished"
    why: str = ""
    times: StepDurations = field(default_factory=StepDurations)

    def to_line(self) -> bytes:
        """Return the message as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"


def parse_message(line: bytes, max_step: int) -> Message | None:
    """Return the message of a line; None if it is none, or one with impossible values."""
    try:
        body = json.loads(line)
        times = body["times"]
        message = Message(
            body["kind"],
            _whole(body["step"]),
            None if body["value"] is None else _real(body["value"], low=-math.inf),
            str(body["folder"]),
            _whole(body["size"]),
            _real(body["seconds"]),
            body["how"],
            one_line(body["why"]),
            StepDurations(
                _whole(times["count"]),
                *(_real(times[name]) for name in ("total_s", "first_s", "longest_s", "squares_s2")),
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    fits = (
        message.kind in ("step", "report", "saved", "ended", "failed")
        and message.how in ("finished", "paused")
        and message.step <= max_step
        and (message.kind != "report" or message.step >= 1)
        and (message.kind != "saved" or _FOLDER.fullmatch(message.folder) is not None)
    )
    return message if fits else None


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("no whole number")
    return value


def _real(value: Any, low: float = 0.0) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < low:
        raise ValueError("no finite number")
    return float(value)


@dataclass(frozen=True, slots=True)
class Command:
    """What the supervisor wants of the process: train to `until_step`, or `stop` after the present step."""

    until_step: int
    stop: bool = False

    def to_line(self) -> bytes:
        """Return the command as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Command":
        """Return the command of a line that a supervisor wrote."""
        body = json.loads(line)
        return cls(int(body["until_step"]), bool(body["stop"]))
