"""What a local training says while it goes on."""

from typing import Any

from flows.local.train import _follow
from flows.terminal.interrupts import Interrupts
from psengine.controller.model_saving import Saving
from psengine.protocol.instructions import GatherModel


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
