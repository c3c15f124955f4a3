"""The state of a sweep: its trials, deployments and machines, and views of them."""

from collections.abc import Mapping

from proteus_spot.bidding.engine.allocations import HeldAllocation
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes
from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule
from proteus_spot.bidding.tuning.sweep_events import SweepOpened
from proteus_spot.bidding.tuning.sweep_holdings import SweepHoldings
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import Deployment, SweepState, TrialRecord


class SweepError(ValueError):
    """An event that is invalid in the present state."""


class SweepRecord:
    """The state of one sweep, and views of it.

    Parameters
    ----------
    rule : the stopping rule; None: the plan's, by its name. One that keeps what it computed saves a simulation time.
    """

    def __init__(self, rule: TrialStoppingRule | None = None) -> None:
        self._given_rule = rule
        self._rule: TrialStoppingRule | None = rule
        self._opened: SweepOpened | None = None
        self._times: StepTimes | None = None
        self.holdings = SweepHoldings()
        self._trials: dict[int, TrialRecord] = {}
        #: Deployments by order id; refused ones stay, for what may be found of them later.
        self._deployments: dict[str, Deployment] = {}
        #: Unanswered orders by id.
        self._open: dict[str, Deploy] = {}
        #: Granted deployments whose machine may live, by order id.
        self._living: dict[str, Deployment] = {}
        #: Allocations that no deployment of ours is for, by id.
        self._strays: dict[str, HeldAllocation] = {}
        self._decisions = 0
        #: Whether something changed that the stopping rule has not seen.
        self._judge_due = False
        self._stop_why = ""
        #: Why the sampler proposes no further settings; empty while it does.
        self._sampler_failure = ""
        #: Whether a step was done by any trial.
        self._is_proven = False
        #: Why machines failed before that, and why that ended the sweep; empty while it did not.
        self._early_failures: list[str] = []
        self._fault = ""
        self._outcome: Finish | None = None
        self._closed = False
        #: Whether the deadline has had no slack at a tick.
        self._is_on_demand = False

    # -- views ------------------------------------------------------------------------------------------------

    @property
    def opened(self) -> SweepOpened:
        """The event that opened the sweep."""
        if self._opened is None:
            raise SweepError("the sweep was not opened")
        return self._opened

    @property
    def plan(self) -> SweepPlan:
        """The sweep's plan."""
        return self.opened.plan

    @property
    def step_times(self) -> StepTimes:
        """The matrix M."""
        if self._times is None:
            raise SweepError("the sweep was not opened")
        return self._times

    @property
    def trials(self) -> Mapping[int, TrialRecord]:
        """The trials by number, in the order in which they were proposed; not to be changed."""
        return self._trials

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """Every deployment by its order id, refused ones included; not to be changed."""
        return self._deployments

    @property
    def open_orders(self) -> Mapping[str, Deploy]:
        """Deployments that were ordered and not answered yet, by order id."""
        return self._open

    @property
    def decisions(self) -> int:
        """Number of decision points so far, which is that of the coming one; for `provisioning.bids.draw_bid`."""
        return self._decisions

    @property
    def stopping(self) -> str:
        """Why the sweep stops before its end, "stop" or "budget"; empty while it does not."""
        return self._stop_why

    @property
    def sampler_failure(self) -> str:
        """Why the sweep has fewer trials than planned; empty while the sampler proposes settings."""
        return self._sampler_failure

    @property
    def outcome(self) -> Finish | None:
        """How the sweep ended; None while it runs."""
        return self._outcome

    @property
    def state(self) -> SweepState:
        """The state of the sweep."""
        return SweepState.RUNNING if self._outcome is None else self._outcome.state

    @property
    def closed(self) -> bool:
        """Whether the sweep was closed, and not opened again since."""
        return self._closed

    @property
    def working(self) -> int:
        """Number of machines that count in `parallel`: ordered ones, and those that train a trial."""
        return len(self._open) + sum(deployment.works for deployment in self._living.values())

    def _rule_of_sweep(self) -> TrialStoppingRule:
        if self._rule is None:
            raise SweepError("the sweep was not opened")
        return self._rule
