"""The plan of a sweep: everything of the user's file that the decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from proteus_spot.bidding.billing.expected import KINDS, BillingKind, hour_micros, is_refunded
from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S
from proteus_spot.bidding.market.money import Micros


class Direction(StrEnum):
    """Which values of the metric are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The parameters of a sweep that its decisions depend on.

    Attributes
    ----------
    trials : int
        Number of settings that the sweep tries.
    max_trial_steps : int
        Steps of a trial that is trained to its end; steps count from 1.
    direction : Direction
    bound : float or None
        Best value that the metric can have, if it is known (maximized metrics: 1 by default).
    stop : str
        Name of the stopping rule; see `bidding.tuning.stopping`.
    theta : float
        Share of the steps after which the final metric is predicted, in (0, 1].
    mcnt : int
        Number of trials that are continued after the prediction.
    parallel : int
        Maximum number of machines that work at a time.
    adaptive : bool
        Whether the sampler needs values of earlier trials: then settings are proposed as machines become free, else
        all at once.
    seed : int
        Seed of the bids.
    billing, flat_micros
        How spot machines are charged, as in `JobModel`.
    notice_s : int
        Seconds between the notice of an eviction and the eviction.
    cooldown_s : int
        Seconds without a request to a market after it refused one.
    restart_s : float
        Seconds without a step when a trial moves to another machine: checkpoint, boot, restore.
    pause_patience_s : int
        Seconds after which the machine of a trial is ended although the trial did not pause as ordered.
    silence_s : int
        Seconds without any report after which a machine is given up.
    deadline_margin : float
        Share by which the rest of the sweep may take longer than by the measured step times.
    probe : bool
        Whether one trial trains alone until a step is done, and three equal failures before that end the sweep.
    on_demand : bool
        Whether machines are bought on demand while no spot market may be bought in; else trials wait.
    """

    trials: int
    max_trial_steps: int
    direction: Direction = Direction.MINIMIZE
    bound: float | None = None
    stop: str = "earlycurve"
    theta: float = 0.7
    mcnt: int = 3
    parallel: int = 8
    adaptive: bool = False
    seed: int = 0
    billing: str = "per-second-first-hour-free"
    flat_micros: Micros = 0
    notice_s: int = 2 * MINUTE_S
    cooldown_s: int = 10 * MINUTE_S
    restart_s: float = 3.0 * MINUTE_S
    pause_patience_s: int = 5 * MINUTE_S
    silence_s: int = 30 * MINUTE_S
    deadline_margin: float = 0.15
    probe: bool = False
    on_demand: bool = False

    def __post_init__(self) -> None:
        for name in ("trials", "max_trial_steps", "mcnt", "parallel"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not 0 < self.theta <= 1:
            raise ValueError(f"theta is {self.theta}: it must be in (0, 1]")
        if self.bound is not None and not isfinite(self.bound):
            raise ValueError(f"bound is {self.bound}: it must be finite")
        if self.billing not in KINDS:
            raise ValueError(f"billing is {self.billing!r}: it must be one of {', '.join(KINDS)}")
        seconds = (self.notice_s, self.cooldown_s, self.restart_s, self.pause_patience_s, self.silence_s)
        if min(*seconds, self.flat_micros, self.deadline_margin) < 0:
            raise ValueError("seconds, the flat price and the margin cannot be negative")

    @property
    def minimizes(self) -> bool:
        """Whether lower values of the metric are better."""
        return self.direction is Direction.MINIMIZE

    @property
    def pays_whole_hours(self) -> bool:
        """Whether an hour that has begun is paid for, so that there is no saving in leaving it early."""
        return KINDS[self.billing] is BillingKind.HOURLY_REFUND

    @property
    def refunds_first_hour(self) -> bool:
        """Whether an eviction within the first hour of a machine makes the hour free."""
        return is_refunded(KINDS[self.billing], True)

    @property
    def redeploy_after_s(self) -> int | None:
        """Seconds on one machine after which a trial may gain by a new one; None where it never does.

        A new machine brings a new chance of a refund where only the first hour is refunded. Where every hour is, or
        none, it brings nothing.
        """
        kind = KINDS[self.billing]
        return HOUR_S if is_refunded(kind, True) and not is_refunded(kind, False) else None

    def hour_micros(self, price_micros: Micros) -> Micros:
        """Return the cost of a spot instance-hour that begins at this price of its market."""
        return hour_micros(KINDS[self.billing], self.flat_micros, price_micros)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "SweepPlan":
        """Return the plan that `dataclasses.asdict` wrote."""
        return cls(**{**record, "direction": Direction(record["direction"])})
