"""Events of a sweep, the input of `SweepEngine`; those of its machines are `bidding.engine.events`'."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan

#: The value of a parameter.
Parameter = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a trial; trials are numbered from 0."""

    number: int
    params: Mapping[str, Parameter]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a market sells at a tick, per machine.

    Attributes
    ----------
    price_micros, average_micros : Micros
        Hourly price now, and its average of the last hour.
    bid_micros : Micros
        The limit that would be bid; see `provisioning.bids.draw_bid`.
    p_evicted : float
        Probability that a machine under this limit is evicted within an hour.
    on_demand_micros : Micros
        Hourly price on demand.
    """

    price_micros: Micros
    average_micros: Micros
    bid_micros: Micros
    p_evicted: float
    on_demand_micros: Micros


@dataclass(frozen=True, slots=True)
class SweepOpened(BidEvent):
    """A sweep begins, with the types and markets on sale.

    `step_seconds` holds market seconds per step by instance type, as measured by earlier sweeps of the same code; it
    may be empty.
    """

    sweep_id: str
    plan: SweepPlan
    types: Mapping[str, InstanceType]
    markets: tuple[Market, ...]
    step_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialsProposed(BidEvent):
    """The sampler proposes settings; those of numbers that the sweep has are ignored."""

    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class SamplerFailed(BidEvent):
    """The sampler can propose no further settings; the sweep goes on with the trials that it has."""

    why: str


@dataclass(frozen=True, slots=True)
class TrialReported(BidEvent):
    """What a deployment reported of its trial.

    Attributes
    ----------
    trial : int
    deployment : str
        The order that it was deployed by.
    values : tuple of (step, value or None)
        The metric by step, ascending; new ones suffice, repeated ones are harmless. None: it was no finite number.
    saved_step : int or None
        Step of the newest state that this deployment uploaded; None: it uploaded none.
    step_s : float or None
        Measured market seconds per step; None: not measured yet.
    ended : str or None
        "paused", "finished" or "failed" once the trial's process ended on that machine.
    why : str
        Why it ended, on one line.
    state_bytes, upload_s : int and float, or None
        Size of an uploaded state, and the seconds that its upload took.
    restore_s, save_s : float or None, and float
        Seconds in which it restored its first state, and in which it has saved states on its machine.
    done_step : int or None
        With `ended` the last step that it did, reported or not; None: it is not known.
    """

    trial: int
    deployment: str
    values: tuple[tuple[int, float | None], ...] = ()
    saved_step: int | None = None
    step_s: float | None = None
    ended: str | None = None
    why: str = ""
    state_bytes: int | None = None
    upload_s: float | None = None
    restore_s: float | None = None
    save_s: float = 0.0
    done_step: int | None = None


@dataclass(frozen=True, slots=True)
class SweepTick(BidEvent):
    """A decision point, with the offers of the markets whose prices are fit to decide on.

    With `buy` False nothing is bought. `left_out` holds the other markets, each with the reason. `spending` and
    `time_left` are None for a sweep without a budget or a deadline; of `time_left` the deadline and the overhead count,
    since the engine knows the steps that are left and measures their times itself. `offers` may be empty where
    `SweepEngine.wants_offers` is False. `generation` is that of the state database in ids of orders.
    """

    offers: Mapping[Market, Offer]
    buy: bool = True
    left_out: Mapping[Market, str] = field(default_factory=dict)
    spending: Spending | None = None
    time_left: TimeLeft | None = None
    generation: str = ""


@dataclass(frozen=True, slots=True)
class SweepStopRequested(BidEvent):
    """The sweep is to end with the best so far; `why` is "stop" or "budget"."""

    why: str


@dataclass(frozen=True, slots=True)
class SweepReopened(BidEvent):
    """A sweep that was stopped, or failed, goes on from the states of its trials."""


@dataclass(frozen=True, slots=True)
class SweepExtended(BidEvent):
    """The sweep gets more trials, `trials` in all, and goes on if it had ended."""

    trials: int


@dataclass(frozen=True, slots=True)
class SweepClosed(BidEvent):
    """The sweep has ended: nothing more is bought, and what lives of it is released."""
