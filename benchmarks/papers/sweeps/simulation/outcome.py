"""The outcome of a simulated sweep: states, steps, dollars and times, by trial and in all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proteus_spot.benchmarks.papers.sweeps.simulation.bills import MachineBill
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.tuning.trials import SweepState, TrialState


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What became of a trial, and what its machines cost; see `TrialRecord` for its figures."""

    number: int
    params: Mapping[str, Any]
    state: TrialState
    steps: int
    repeated_steps: int
    value: float | None
    predicted: float | None
    bills: tuple[MachineBill, ...]

    @property
    def micros(self) -> Micros:
        """What is paid for it: charges less refunds."""
        return sum(bill.micros for bill in self.bills)

    @property
    def refunded_micros(self) -> Micros:
        """The refunds of its machines."""
        return sum(bill.refunded_micros for bill in self.bills)

    @property
    def evictions(self) -> int:
        """How many of its machines the market took."""
        return sum(bill.cause is EndCause.EVICTED for bill in self.bills)

    @property
    def machine_s(self) -> int:
        """Seconds of its machines."""
        return sum(bill.machine_s for bill in self.bills)

    @property
    def kept_steps(self) -> int:
        """Steps that its machines added; `steps`, unless its newest state is not its newest step."""
        return sum(bill.kept_step - bill.from_step for bill in self.bills)

    @property
    def free_steps(self) -> int:
        """Those of them that ended in a refunded hour."""
        return sum(bill.free_steps for bill in self.bills)


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The outcome of a sweep.

    Attributes
    ----------
    state : RUNNING if the prices ended before the sweep did.
    started_s, ended_s : of the sweep.
    trials : by number.
    best_trial : as of a live sweep (`bidding.tuning.views.best_trial`); None: there is no value.
    ticks : decision points that the engine was asked at.
    """

    state: SweepState
    why: str
    started_s: int
    ended_s: int
    trials: tuple[TrialOutcome, ...]
    best_trial: int | None
    ticks: int

    @property
    def bills(self) -> tuple[MachineBill, ...]:
        """Every machine's bill, trial by trial."""
        return tuple(bill for trial in self.trials for bill in trial.bills)

    @property
    def micros(self) -> Micros:
        """What the sweep costs."""
        return sum(trial.micros for trial in self.trials)

    @property
    def refunded_micros(self) -> Micros:
        """The refunds."""
        return sum(trial.refunded_micros for trial in self.trials)

    @property
    def evictions(self) -> int:
        """How many machines the market took."""
        return sum(trial.evictions for trial in self.trials)

    @property
    def machine_s(self) -> int:
        """Seconds of all machines."""
        return sum(trial.machine_s for trial in self.trials)

    @property
    def completion_s(self) -> int:
        """Seconds from the start of the sweep to its end: JCT."""
        return self.ended_s - self.started_s

    @property
    def free_share(self) -> float:
        """Share of the kept steps that ended in a refunded hour; 0 where there are none."""
        kept = sum(trial.kept_steps for trial in self.trials)
        return sum(trial.free_steps for trial in self.trials) / kept if kept else 0.0
