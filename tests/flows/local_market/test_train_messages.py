"""What a local training says while it goes on."""

from types import SimpleNamespace
from typing import Any

import pytest

from proteus_spot.flows.local_training import _follow, _outcome
from proteus_spot.flows.terminal.interrupts import Interrupts
from proteus_spot.psengine.controller.model_saving import Saving
from proteus_spot.psengine.protocol.instructions import GatherModel


class _Training:
    """Shows statuses one after another, and ends with the last."""

    def __init__(self, statuses: list[dict[str, Any]]) -> None:
        self._coming = iter(statuses)
        self._last = statuses[-1]

    def look(self) -> dict[str, Any]:
        return next(self._coming)

    def ended(self, status: dict[str, Any]) -> bool:
        return status is self._last

    def carry_out(self, _status: dict[str, Any]) -> list[str]:
        return []

    def wait(self) -> None:
        return

    def finish(self, status: dict[str, Any]) -> dict[str, Any]:
        return status


class _Display:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, _moment: object, _now_s: float) -> None:
        return

    def close(self) -> None:
        return


def test_why_a_model_is_not_saved_is_said_at_once_and_once() -> None:
    order: GatherModel = object()  # type: ignore[assignment]
    saving = Saving(order)
    saving.failed("model.npz: cannot write it: No space left on device", False, 0.0)
    reasons = ("", "saving the model", saving.reason, saving.reason, "")
    statuses: list[dict[str, Any]] = [{"reason": reason, "remarks": [], "damage": ""} for reason in reasons]
    show = _Display()
    _follow(_Training(statuses), "job", show, Interrupts())  # type: ignore[arg-type]
    assert show.lines == [
        "the model could not be saved: model.npz: cannot write it: No space left on device (try 1; again soon)"
    ]


@pytest.mark.parametrize(
    ("reached", "kept", "says"),
    [
        (1, 0, "failed in clock 2 of 8; a second run starts from the beginning; to go on"),
        (5, 4, "failed in clock 6 of 8; a second run starts from clock 4; to go on"),
        (8, 8, "failed after clock 8 of 8; a second run starts from clock 8; to go on"),
    ],
)
def test_a_job_that_failed_says_in_which_clock_and_where_a_second_run_starts(
    reached: int, kept: int, says: str
) -> None:
    training: Any = SimpleNamespace(clock=reached, keep=lambda: kept)
    books: Any = SimpleNamespace(trained=lambda: None)
    job: Any = SimpleNamespace(job_id="j", training=SimpleNamespace(clocks=8))
    assert _outcome(training, books, job, failed=True) == f"job j {says}"
    assert _outcome(training, books, job, failed=False) == f"job j is at clock {kept} of 8; to go on"
