"""A trial of a sweep as the engine holds it: its state, its curve, and its deployments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.tuning.stopping.base import TrialView


class TrialState(StrEnum):
    """State of a trial."""

    WAITING = "waiting"  # for a machine
    RUNNING = "running"
    EVICTED = "evicted"  # the market took its machine, and it has no other yet
    PAUSED = "paused"  # at its target step, until the stopping rule decides; or with the sweep
    FINISHED = "finished"
    STOPPED_EARLY = "stopped_early"
    FAILED = "failed"


class SweepState(StrEnum):
    """State of a sweep."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"  # by its user or its budget, with the best so far
    FAILED = "failed"  # no trial has a value


#: States in which a trial never runs again.
ENDED = frozenset({TrialState.FINISHED, TrialState.STOPPED_EARLY, TrialState.FAILED})
#: Values of `TrialReported.ended`.
ENDS = ("paused", "finished", "failed")


class MetricCurve:
    """The metric of a trial by step, in arrays that grow.

    `steps` and `values` share the arrays and cost nothing; they hold until the next report.
    """

    __slots__ = ("_count", "_steps", "_values")

    def __init__(self) -> None:
        self._count = 0
        self._steps = np.empty(64, np.int64)
        self._values = np.empty(64)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricCurve):
            return NotImplemented
        return np.array_equal(self.steps, other.steps) and np.array_equal(self.values, other.values, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def steps(self) -> NDArray[np.int64]:
        """(n,) steps with a value, ascending."""
        return self._steps[: self._count]

    @property
    def values(self) -> NDArray[np.float64]:
        """(n,) the metric at each of them; NaN where it was no finite number."""
        return self._values[: self._count]

    @property
    def last_step(self) -> int:
        """The newest step with a value; 0 before the first."""
        return int(self._steps[self._count - 1]) if self._count else 0

    def has(self, step: int) -> bool:
        """Return whether a step has a value."""
        index = int(np.searchsorted(self.steps, step))
        return index < self._count and bool(self._steps[index] == step)

    def put(self, step: int, value: float | None) -> bool:
        """Enter the metric of a step; return whether it replaces an earlier report of that step."""
        count = self._count
        index = count
        if count and step <= self._steps[count - 1]:  # a repeated step, or a late report
            index = int(np.searchsorted(self.steps, step))
        replaces = index < count and self._steps[index] == step
        if not replaces:
            self._reserve(count + 1)
            self._steps[index + 1 : count + 1] = self._steps[index:count].copy()
            self._values[index + 1 : count + 1] = self._values[index:count].copy()
            self._steps[index] = step
            self._count += 1
        self._values[index] = np.nan if value is None else value
        return bool(replaces)

    def extend(self, steps: Sequence[int], values: Sequence[float | None]) -> int:
        """Enter the metric of several steps, ascending; return how many replace an earlier report of their step."""
        count, new = self._count, len(steps)
        if count and new and steps[0] <= self._steps[count - 1]:
            return sum(map(self.put, steps, values))
        self._reserve(count + new)
        self._steps[count : count + new] = steps
        self._values[count : count + new] = values  # None becomes NaN
        self._count += new
        return 0

    def _reserve(self, count: int) -> None:
        room = len(self._steps)
        if count > room:
            more = max(count - room, room)
            self._steps = np.concatenate([self._steps, np.empty(more, np.int64)])
            self._values = np.concatenate([self._values, np.empty(more)])

    def value_at(self, step: int) -> float | None:
        """Return the metric at the newest step up to `step`; None where it is not a finite number, or there is none."""
        index = int(np.searchsorted(self.steps, step, side="right")) - 1
        value = self._values[index] if index >= 0 else np.nan
        return float(value) if np.isfinite(value) else None


@dataclass(slots=True)
class Deployment:
    """One order to run a trial on a machine, and what became of it.

    Attributes
    ----------
    order_id : str
    trial : int
    market : Market
    from_step, until_step : int
        Step of the newest state when it was ordered, and the step at which it was to pause.
    is_granted, is_refused : bool
        Its answer; neither while it is open.
    reported_step, saved_step, done_step : int
        Newest step that it reported, of the newest state that it uploaded, and that it had done at its end; 0 before.
    granted_at_s : int
        Time of the grant.
    has_reported : bool
        Whether it sent any report.
    ended : str
        One of `ENDS` once it reported that the trial's process ended; empty before.
    is_gone : bool
        Whether its machine is gone.
    is_evicted : bool
        Whether the market took its machine while the trial was on it.
    is_lost : bool
        Whether its machine ended while the trial was on it, and neither the market nor an order of ours ended it.
    pause_why, paused_at_s
        Why, and since when, it was ordered to pause; empty and None while it was not.
    patience_s : int
        Seconds after that in which it has to pause.
    release_why : str
        Why its machine is to be ended; empty while it is not.
    state_s : float
        Seconds in which it restored a state, saved states on its machine, and made its newest upload.
    """

    order_id: str
    trial: int
    market: Market
    from_step: int
    until_step: int = 0
    is_granted: bool = False
    is_refused: bool = False
    reported_step: int = 0
    saved_step: int = 0
    done_step: int = 0
    granted_at_s: int = 0
    has_reported: bool = False
    ended: str = ""
    is_gone: bool = False
    is_evicted: bool = False
    is_lost: bool = False
    pause_why: str = ""
    paused_at_s: int | None = None
    patience_s: int = 0
    release_why: str = ""
    state_s: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it was ordered and not answered yet."""
        return not (self.is_granted or self.is_refused)

    @property
    def reached_step(self) -> int:
        """The newest step that it is known to have done, or to have begun from."""
        return max(self.reported_step, self.saved_step, self.done_step, self.from_step)

    @property
    def has_arrived(self) -> bool:
        """Whether it came to the step at which it was to pause."""
        return 0 < self.until_step <= self.reached_step

    @property
    def was_interrupted(self) -> bool:
        """Whether the sweep's end or the market ended it, which says nothing of its trial."""
        return self.is_evicted or self.pause_why.startswith("the sweep")

    @property
    def works(self) -> bool:
        """Whether its machine trains the trial, as far as was reported."""
        return self.is_granted and not self.ended and not self.is_gone and not self.release_why


@dataclass(slots=True)
class TrialRecord:
    """A trial, as its reports and the market's events leave it.

    Attributes
    ----------
    number, params : the setting.
    until_step : int
        The step at which it pauses next.
    state : TrialState
    why : str
        Why it is in that state, where that needs a reason; one line.
    curve : MetricCurve
        Every reported value; a repeated step has its last one.
    saved_step : int
        Step of its newest uploaded state: there it stands without a machine.
    repeated_steps : int
        Steps that were reported again after their state had been lost.
    failures : dict
        Number of failures by the step at which it failed.
    predicted, predicted_std : float or None
        The metric expected at the last step, once it was predicted.
    orders : int
        Number of deployments that were ordered, refused ones included.
    deployments : list of Deployment
        In the order of their numbers, without refused ones; the last one is the present one.
    excused : int
        Number of its first deployments that do not count as deployments without progress: those before it was begun
        again by hand.
    closing : TrialState or None
        The state in which it ends when its machine has paused; None: it does not end yet.
    upload_s : float
        Seconds that its newest upload took; 0 before the first.
    state_bytes : int
        Size of its newest state.
    """

    number: int
    params: Mapping[str, object]
    until_step: int
    state: TrialState = TrialState.WAITING
    why: str = ""
    curve: MetricCurve = field(default_factory=MetricCurve)
    saved_step: int = 0
    repeated_steps: int = 0
    failures: dict[int, int] = field(default_factory=dict)
    predicted: float | None = None
    predicted_std: float | None = None
    orders: int = 0
    deployments: list[Deployment] = field(default_factory=list)
    excused: int = 0
    closing: TrialState | None = None
    upload_s: float = 0.0
    state_bytes: int = 0

    @property
    def present(self) -> Deployment | None:
        """The newest deployment; None before the first."""
        return self.deployments[-1] if self.deployments else None

    @property
    def evictions(self) -> int:
        """Machines that the market took while it was on them."""
        return sum(deployment.is_evicted for deployment in self.deployments)

    @property
    def has_ended(self) -> bool:
        """Whether it never runs again."""
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        """Whether it waits for a machine that was not ordered yet."""
        if self.state is not TrialState.WAITING and self.state is not TrialState.EVICTED:
            return False
        present = self.present
        return present is None or not (present.is_open or present.works)

    @property
    def steps(self) -> int:
        """The step at which it stands: that of its newest state, or of its newest report while that is not lost."""
        if self.has_ended:
            return max(self.saved_step, self.curve.last_step)
        present = self.present
        if present is not None and (present.works or present.ended == "paused"):
            return max(self.saved_step, present.reported_step)
        return self.saved_step

    @property
    def value(self) -> float | None:
        """The metric at the step at which it stands; None where it is not a finite number, or was not reported."""
        return self.curve.value_at(self.steps)

    @property
    def idle(self) -> list[Deployment]:
        """The newest deployments in a row that brought nothing: no later state, and not the step that they were for."""
        idle: list[Deployment] = []
        for deployment in reversed(self.deployments[self.excused :]):
            if deployment.from_step < self.saved_step or deployment.has_arrived:
                break
            idle.append(deployment)
        return idle

    def view(self) -> TrialView:
        """Return what a stopping rule may know of it; it holds until the next report."""
        present = self.present
        has_arrived = self.state is TrialState.PAUSED and present is not None and present.has_arrived
        at_step = self.until_step if has_arrived else 0
        return TrialView(self.number, self.curve.steps, self.curve.values, self.until_step, self.state, at_step)
