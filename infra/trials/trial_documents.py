"""The JSON documents of a trial in the blob store: its setting and orders from the flow, its report from the node."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from proteus_spot.infra.errors import ProteusError

#: How a deployment ended.
Ended = Literal["paused", "finished", "failed"]
#: Maximum characters of `TrialReport.why`.
MAX_WHY = 1000


class DocumentError(ProteusError):
    """A document of a trial is not what its writer writes."""


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """What a trial trains, the same for all its deployments: ``setting.json``.

    Attributes
    ----------
    params : value of each parameter.
    trial : ``module:function``, or the name of an application of the engine.
    metric, direction : name of the sweep's metric, and `minimize` or `maximize`.
    data : name of the data file in the set `SweepPaths.data`; None without data.
    checkpoint_minutes : market minutes between uploads of the state.
    """

    params: Mapping[str, Any]
    seed: int
    max_trial_steps: int
    trial: str
    metric: str
    direction: str = "minimize"
    data: str | None = None
    checkpoint_minutes: float = 5.0

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        body = asdict(self) | {"params": dict(self.params)}
        return body | {"metric": {"name": body.pop("metric"), "direction": body.pop("direction")}}

    @classmethod
    def from_json(cls, body: Any) -> "TrialSetting":
        """Return the setting of a document; `DocumentError` if it is none."""
        try:
            return cls(
                dict(body["params"]),
                int(body["seed"]),
                int(body["max_trial_steps"]),
                str(body["trial"]),
                str(body["metric"]["name"]),
                str(body["metric"]["direction"]),
                None if body.get("data") is None else str(body["data"]),
                float(body.get("checkpoint_minutes", 5.0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DocumentError(f"setting of a trial: is not readable: {error!r}") from None


@dataclass(frozen=True, slots=True)
class TrialOrders:
    """What a deployment should do: ``orders.json``. It ends after `until_step`, or at `pause` as soon as it can."""

    until_step: int
    pause: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> "TrialOrders":
        """Return the orders of a document; `DocumentError` if it has none."""
        try:
            return cls(int(body["until_step"]), bool(body.get("pause", False)), str(body.get("why", "")))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DocumentError(f"orders of a trial: are not readable: {error!r}") from None


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What a deployment has done so far: ``report.json``, written whole each time.

    Attributes
    ----------
    values : step and value of the metric, in the order of the steps; None where it was no finite number.
    saved_step : step of the newest state that was uploaded by this deployment; None if it uploaded none.
    restored_step : step of the state that it began with; 0 without one.
    step_s : market seconds of a step, on average; None before one was measured.
    step_cov : standard deviation of a step's seconds as a share of their mean; None before it was measured.
    repeated_steps : number of reports that replaced one of the same step in this deployment.
    ended, why : how it ended, and why, on one line; None while it runs.
    state_bytes, upload_s, restore_s : size of the last uploaded state, and the market seconds of its upload and of the
        restoring at the begin; None where there was none.
    save_s : market seconds that all saving on the machine has taken.
    note : what its author should know, on one line; empty if nothing.
    done_step : with `ended` the last step that it did, reported or not; None where it failed.
    at_s : market time of this report.
    """

    values: tuple[tuple[int, float | None], ...] = ()
    saved_step: int | None = None
    restored_step: int = 0
    step_s: float | None = None
    step_cov: float | None = None
    repeated_steps: int = 0
    ended: Ended | None = None
    why: str = ""
    state_bytes: int | None = None
    upload_s: float | None = None
    restore_s: float | None = None
    save_s: float = 0.0
    note: str = ""
    at_s: float = field(default=0.0)
    done_step: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return asdict(self) | {"values": [list(pair) for pair in self.values]}

    @classmethod
    def from_json(cls, body: Any) -> "TrialReport":
        """Return the report of a document; `DocumentError` if it is none."""
        try:
            values = tuple((int(step), None if value is None else float(value)) for step, value in body["values"])
            if body["ended"] not in (None, "paused", "finished", "failed"):
                raise ValueError(f"ended {body['ended']!r}")
            return cls(
                tuple(sorted(values)),
                _optional(int, body["saved_step"]),
                int(body.get("restored_step", 0)),
                _optional(float, body["step_s"]),
                _optional(float, body.get("step_cov")),
                int(body.get("repeated_steps", 0)),
                body["ended"],
                one_line(body["why"]),
                _optional(int, body["state_bytes"]),
                _optional(float, body["upload_s"]),
                _optional(float, body["restore_s"]),
                float(body.get("save_s", 0.0)),
                one_line(body.get("note", "")),
                float(body["at_s"]),
                _optional(int, body.get("done_step")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DocumentError(f"report of a trial: is not readable: {error!r}") from None


def one_line(text: Any) -> str:
    """Return a text on one line of at most `MAX_WHY` characters."""
    return " ".join(str(text).split())[:MAX_WHY]


def finite_or_none(value: float) -> float | None:
    """Return a number, None for NaN and the infinities."""
    return value if math.isfinite(value) else None


def _optional(kind: type[Any], value: Any) -> Any:
    return None if value is None else kind(value)
