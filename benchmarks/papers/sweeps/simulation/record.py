"""Recorded trials of an application: the curve, the seconds of a step and the size of the state of each setting.

`infra.trials.records` reads and writes them as .npz files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.bidding.tuning.sweep_plan import Direction

Float64s = NDArray[np.float64]

#: Share of a step that more vCPUs do not shorten, where steps were measured with one number of vCPUs only.
SERIAL_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class RecordedTrials:
    """What one run of every setting has shown; enough to replay a sweep of them on any prices.

    Attributes
    ----------
    application : name of what was trained, as in ``mlr`` or ``my_trial:train``.
    metric, direction : name of the metric, and which of its values are better.
    settings : the parameters of each trial, JSON values by name.
    values : shape (trials, steps)
        The metric after each step, NaN where the trial reported none: it had ended, or the value was not finite.
    vcpus : shape (k,)
        The numbers of vCPUs with which steps were measured, rising; at least one.
    step_s, step_cov : shape (trials, k)
        Mean seconds of a step, and their standard deviation as a share of the mean.
    state_bytes : shape (trials,)
        Size of the state that a checkpoint uploads.
    upload_s, restore_s : shape (trials,)
        Seconds to upload it, and to fetch it and load it.
    seed : of the trials.
    """

    application: str
    metric: str
    direction: Direction
    settings: tuple[Mapping[str, Any], ...]
    values: Float64s
    vcpus: Int64s
    step_s: Float64s
    step_cov: Float64s
    state_bytes: Int64s
    upload_s: Float64s
    restore_s: Float64s
    seed: int = 0

    def __post_init__(self) -> None:
        trials, sizes = len(self.settings), len(self.vcpus)
        if not trials or self.values.ndim != 2 or self.values.shape[0] != trials or not self.values.shape[1]:
            raise ValueError(f"values of shape {self.values.shape} for {trials} settings; want (settings, steps)")
        if not sizes or self.vcpus.min() < 1 or (np.diff(self.vcpus) <= 0).any():
            raise ValueError("the numbers of vCPUs must be 1 or more, and rise")
        for name, shape in (
            ("step_s", (trials, sizes)),
            ("step_cov", (trials, sizes)),
            ("state_bytes", (trials,)),
            ("upload_s", (trials,)),
            ("restore_s", (trials,)),
        ):
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"{name} of shape {array.shape}; want {shape}")
            if not np.isfinite(array).all() or (array < 0).any():
                raise ValueError(f"{name} must be finite numbers of at least 0")
        if (self.step_s <= 0).any():
            raise ValueError("step_s must be above 0")

    @property
    def trials(self) -> int:
        """The number of settings."""
        return len(self.settings)

    @property
    def steps(self) -> int:
        """The number of steps of the longest trial."""
        return int(self.values.shape[1])

    @cached_property
    def final_values(self) -> Float64s:
        """The value of each trial's last step, shape (trials,); NaN for a trial that did not get there."""
        return self.values[:, -1]

    def ranking(self) -> Int64s:
        """Return the trials, the best final value first; those without one are last, ties by number."""
        worth = self.final_values if self.direction is Direction.MINIMIZE else -self.final_values
        return np.argsort(np.where(np.isnan(worth), np.inf, worth), kind="stable")

    def seconds_per_step(self, vcpus: Int64s) -> Float64s:
        """Return the seconds of a step on machines of each number of vCPUs, shape (trials, len(vcpus)).

        Notes
        -----
        A serial and a parallel part, a + b / vCPUs with a, b >= 0 (Amdahl), fitted to the measurements; with one
        number of vCPUs measured, `SERIAL_SHARE` of the step counts as serial.
        """
        asked = 1.0 / np.asarray(vcpus, dtype=np.float64)
        measured = 1.0 / self.vcpus.astype(np.float64)
        if len(measured) == 1:
            serial = SERIAL_SHARE * self.step_s[:, 0]
            parallel = (self.step_s[:, 0] - serial) / measured[0]
        else:
            centred = measured - measured.mean()
            slope = (self.step_s @ centred) / (centred @ centred)
            mean_s = self.step_s.mean(axis=1)
            # No share is negative: steps that more vCPUs lengthen have no parallel part, and the other way round.
            parallel = np.clip(slope, 0.0, mean_s / measured.mean())
            serial = mean_s - parallel * measured.mean()
        seconds: Float64s = serial[:, None] + parallel[:, None] * asked
        return seconds

    def header(self) -> dict[str, Any]:
        """Return what is not an array, as JSON-able values."""
        return {
            "application": self.application,
            "metric": self.metric,
            "direction": self.direction,
            "settings": [dict(setting) for setting in self.settings],
            "seed": self.seed,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "RecordedTrials":
        """Return the record of a header and its arrays; `ValueError` for anything that `header` did not give."""
        try:
            integers = ("vcpus", "state_bytes")
            typed: dict[str, Any] = {
                name: arrays[name].astype(np.int64 if name in integers else np.float64) for name in ARRAYS
            }
            return cls(
                str(header["application"]),
                str(header["metric"]),
                Direction(header["direction"]),
                tuple(dict(setting) for setting in header["settings"]),
                seed=int(header["seed"]),
                **typed,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no record of trials: {error!r}") from None


#: The arrays of a record.
ARRAYS = ("values", "vcpus", "step_s", "step_cov", "state_bytes", "upload_s", "restore_s")
