"""The object that a sweep gives to the user's `train(trial)`; the same on a machine, on a laptop and in a test."""

import math
import numbers
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

from proteus_spot.infra.trials.saved_states import pack_state, remove_folder, unpack_state
from proteus_spot.infra.trials.trial_errors import TrialError

_STATE = re.compile(r"\d{6}-\d{9}")


class TrialHost(Protocol):
    """What surrounds a trial: a supervisor on a machine, or nothing but a folder on a laptop."""

    def next_step(self, done: int) -> int | None:
        """Return the step after `done`, the last one trained; None if the loop has to end now."""
        ...

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step; a repeated step replaces the first."""
        ...

    def save_state(self, step: int, model: Any) -> None:
        """Store the state after a step."""
        ...

    def last_saved(self) -> tuple[int, Path] | None:
        """Return step and folder of the state saved last; None if there is none."""
        ...


class Trial:
    """One setting of a sweep while it trains.

    A training function gets it from the sweep. In a notebook or a test, make one by `Trial.local`.

    Attributes
    ----------
    params : mapping of str to the value of each parameter of the space.
    seed : int, the same for every deployment of the trial.
    data : str or None, the local path of the sweep's data file.
    max_trial_steps : int, the number of steps of a complete training.
    """

    def __init__(
        self, params: Mapping[str, Any], *, seed: int, data: str | None, max_trial_steps: int, host: TrialHost
    ) -> None:
        self.params: Mapping[str, Any] = MappingProxyType(dict(params))
        self.seed = seed
        self.data = data
        self.max_trial_steps = max_trial_steps
        self._host = host
        #: The last step whose training has begun; the restored one at first.
        self._step = 0

    @classmethod
    def local(
        cls,
        params: Mapping[str, Any],
        *,
        data: str | Path | None = None,
        seed: int = 0,
        max_trial_steps: int = 10,
        directory: str | Path | None = None,
    ) -> "LocalTrial":
        """Return a trial that runs in this process, without a sweep.

        Parameters
        ----------
        params : value of each parameter, as the sweep would choose it.
        data : path of the data file.
        directory : keeps the saved state, so that a later trial in the same directory goes on from it; None: a
            temporary one.
        """
        return LocalTrial(params, data, seed, max_trial_steps, directory)

    def restore(self) -> Any:
        """Return what `save` kept last, or None; the steps then start after it.

        Arrays come back as what they were, on the CPU; a file or a folder as the path of a copy.
        """
        saved = self._host.last_saved()
        if saved is None:
            return None
        step, folder = saved
        model = unpack_state(folder)
        self._step = step
        return model

    def steps(self) -> Iterator[int]:
        """Yield the steps to train, from 1 or after the restored one to `max_trial_steps`.

        A pause or an eviction notice ends the loop early; return from the function then, as at its regular end.
        """
        while (step := self._host.next_step(self._step)) is not None:
            self._step = step
            yield step

    def report(self, step: int, **metrics: float) -> None:
        """Report the metrics of a step, the sweep's own among them; a repeated report replaces the first.

        Raises
        ------
        TrialError
            For a step that was not trained yet, or a metric that is not a number.
        """
        number = as_step(step)
        if number is None or not 1 <= number <= self._step:
            raise TrialError(
                f"report: step {step!r} is not among the steps trained, 1 to {self._step}; report what steps() yields"
            )
        if not metrics:
            raise TrialError(f"report: step {number} has no metric; name one, as in trial.report(step, loss=0.1)")
        self._host.record(number, {name: as_number(name, value) for name, value in metrics.items()})

    def save(self, model: Any) -> None:
        """Keep the state after the present step: arrays by name, bytes, a path, or a scikit-learn estimator.

        Call it after the training of the step. `restore` returns the same kind of value.

        Raises
        ------
        TrialError
            If it cannot be saved without pickle; the message names the type and the fix.
        """
        self._host.save_state(self._step, model)


class LocalTrial(Trial):
    """A trial in this process. `reported` has the metrics by step."""

    def __init__(
        self,
        params: Mapping[str, Any],
        data: str | Path | None,
        seed: int,
        max_trial_steps: int,
        directory: str | Path | None,
    ) -> None:
        host = _FolderHost(max_trial_steps, directory)
        path = None if data is None else str(data)
        super().__init__(params, seed=seed, data=path, max_trial_steps=max_trial_steps, host=host)
        self.reported: Mapping[int, Mapping[str, float]] = MappingProxyType(host.reported)

    def again(self) -> Self:
        """Return the trial as its next deployment would get it: with the saved state, before any step."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _step=0)
        return other


class _FolderHost:
    def __init__(self, max_trial_steps: int, directory: str | Path | None) -> None:
        self._max_trial_steps = max_trial_steps
        self.reported: dict[int, dict[str, float]] = {}
        self._temporary = None if directory is not None else tempfile.TemporaryDirectory(prefix="proteus-trial-")
        self._directory = Path(self._temporary.name if self._temporary is not None else str(directory))

    def next_step(self, done: int) -> int | None:
        return done + 1 if done < self._max_trial_steps else None

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        self.reported[step] = dict(metrics)

    def save_state(self, step: int, model: Any) -> None:
        older = self._folders()
        number = int(older[-1].name[:6]) + 1 if older else 0
        pack_state(model, self._directory / f"{number:06d}-{step:09d}")
        for folder in older:
            remove_folder(folder)

    def last_saved(self) -> tuple[int, Path] | None:
        folders = self._folders()
        return (int(folders[-1].name[7:]), folders[-1]) if folders else None

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("*") if _STATE.fullmatch(path.name))


def as_step(step: Any) -> int | None:
    """Return a step as int; None if it is not a whole number."""
    if isinstance(step, bool) or not isinstance(step, numbers.Integral):
        return None
    return int(step)


def as_number(name: str, value: Any) -> float:
    """Return the value of a metric; NaN and infinities are values.

    Raises
    ------
    TrialError
        If it is not a number: a text, an array of several values, None.
    """
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TrialError(f"report: {name} is a {type(value).__name__} and no number; give float({name})") from None
    return number if not math.isnan(number) else math.nan
