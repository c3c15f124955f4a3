"""A sweep at one moment, as its table, its pictures, its page and `proteus sweep show` read it."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.tuning.space import Parameter, Params

#: States of trials, in the order in which they are counted.
STATES = ("waiting", "running", "evicted", "paused", "finished", "stopped_early", "failed")
#: Maximum number of trials that a picture draws, the best ones.
MOST_DRAWN = 100


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A trial of a sweep.

    Attributes
    ----------
    state : one of `STATES`; `why` says why, where that needs a reason.
    steps : the step at which it stands; `until_step` is where it pauses next.
    value : the metric there; `predicted` at its last step, with its standard deviation. None: not known.
    spent_micros, refunded_micros : what its machines were charged less what was refunded, and what was refunded.
    market : where its machine runs now; empty without one.
    curve_steps, curve_values : (n,) steps with a value, ascending, and the metric; NaN where it was no finite number.
    """

    number: int
    params: Params
    state: str
    why: str = ""
    steps: int = 0
    until_step: int = 0
    repeated_steps: int = 0
    value: float | None = None
    predicted: float | None = None
    predicted_std: float | None = None
    spent_micros: Micros = 0
    refunded_micros: Micros = 0
    evictions: int = 0
    market: str = ""
    curve_steps: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    curve_values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @property
    def name(self) -> str:
        """The name of the trial in texts, as in ``trial-07``."""
        return trial_name(self.number)


@dataclass(frozen=True, slots=True)
class TrialMachine:
    """A machine of a trial: where, under which bid (None: on demand), from when until when (None: it lives).

    `cause` is how it ended: "evicted", "failed", "user"; empty while it lives. `state_s` are its seconds for the
    state of its trial: the restore, saving, and the newest upload.
    """

    trial: int
    order_id: str
    market: str
    bid_micros: Micros | None
    from_s: int
    until_s: int | None
    cause: str
    spent_micros: Micros = 0
    refunded_micros: Micros = 0
    state_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep: its trials in the order of their numbers, their machines in the order of their launches, its money.

    Attributes
    ----------
    state : running, finished, stopped or failed; `why` says why it ended.
    trial : what is trained, as its file has it.
    space : the parameters, by which pictures scale their axes.
    trial_count : number of trials that it will have.
    name : the sweep's name, which scheduled sweeps of one file share.
    best_number : the trial with the best value; None where none has one.
    begun_s, last_s : when it was recorded, and the time of its last record; seconds since the epoch, market time.
    ended_s : when it ended; None while it runs.
    prices : by market (times in seconds, hourly prices in micro-dollars) as decisions saw them: steps.
    """

    sweep_id: str
    state: str
    why: str
    trial: str
    metric: str
    direction: str
    max_trial_steps: int
    trial_count: int
    space: Mapping[str, Parameter]
    begun_s: float
    last_s: float
    ended_s: float | None
    trials: tuple[TrialLine, ...] = ()
    machines: tuple[TrialMachine, ...] = ()
    prices: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)
    spent_micros: Micros = 0
    refunded_micros: Micros = 0
    budget_micros: Micros | None = None
    deadline_s: int | None = None
    best_number: int | None = None
    name: str = ""

    @property
    def market_s(self) -> float:
        """Market seconds from its begin to its end, or to its last record."""
        return (self.last_s if self.ended_s is None else self.ended_s) - self.begun_s

    @property
    def evictions(self) -> int:
        """The number of machines that the market took."""
        return sum(machine.cause == "evicted" for machine in self.machines)

    @property
    def checkpoint_share(self) -> float | None:
        """The share of the machines' time in which states were saved, uploaded and restored; None without machines."""
        machine_s = sum((self.last_s if its.until_s is None else its.until_s) - its.from_s for its in self.machines)
        return sum(its.state_s for its in self.machines) / machine_s if machine_s > 0 else None

    @property
    def best(self) -> TrialLine | None:
        """The trial with the best value; None where none has one."""
        return next((trial for trial in self.trials if trial.number == self.best_number), None)

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials by state, of states that any trial is in."""
        found = Counter(trial.state for trial in self.trials)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def done_share(self) -> float:
        """The share of the work that is done or not needed any more, from 0 to 1: steps, or whole trials that ended."""
        ended = ("finished", "stopped_early", "failed")
        done = sum(1.0 if t.state in ended else t.steps / self.max_trial_steps for t in self.trials)
        return 1.0 if self.state == "finished" else min(done / max(self.trial_count, 1), 1.0)

    def ranked(self) -> list[TrialLine]:
        """Return the trials with the best value first; those without a value are last."""
        return sorted(self.trials, key=lambda trial: (_rank(trial.value, self.direction), trial.number))


def trial_name(number: int) -> str:
    """Return the name of a trial in texts, as in ``trial-07``."""
    return f"trial-{number:02}"


def params_text(params: Mapping[str, Any]) -> str:
    """Return a setting on one line, as in ``alpha=0.001, penalty=l1``."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in params.items())


def value_text(value: Any) -> str:
    """Return the value of a parameter or a metric as text; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _rank(value: float | None, direction: str) -> float:
    if value is None or not math.isfinite(value):
        return math.inf
    return value if direction == "minimize" else -value
