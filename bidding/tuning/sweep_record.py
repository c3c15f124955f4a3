"""The state of a sweep: its trials, deployments and machines, views of them, and the orders that enter it."""

from collections.abc import Sequence
from dataclasses import replace

from proteus_spot.bidding.engine.allocations import HeldAllocation
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes
from proteus_spot.bidding.tuning.stopping import stopping_rule
from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule
from proteus_spot.bidding.tuning.sweep_events import SweepOpened
from proteus_spot.bidding.tuning.sweep_holdings import SweepHoldings
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import Deployment, SweepState, TrialRecord


class SweepError(ValueError):
    """An event that is invalid in the present state."""


class SweepRecord:
    """The state of one sweep, and views of it. Its engine and `TrialProgress` change it; everything else reads it.

    Parameters
    ----------
    rule : see `SweepEngine`.
    """

    def __init__(self, rule: TrialStoppingRule | None = None) -> None:
        self._rule: TrialStoppingRule | None = rule
        self._opened: SweepOpened | None = None
        self._times: StepTimes | None = None
        self.holdings = SweepHoldings()
        #: The trials by number, in the order in which they were proposed.
        self.trials: dict[int, TrialRecord] = {}
        #: Deployments by order id; refused ones stay, for what may be found of them later.
        self.deployments: dict[str, Deployment] = {}
        #: Unanswered orders by id.
        self.open_orders: dict[str, Deploy] = {}
        #: Granted deployments whose machine may live, by order id.
        self.living: dict[str, Deployment] = {}
        #: Allocations that no deployment of ours is for, by id.
        self.strays: dict[str, HeldAllocation] = {}
        #: Number of decision points so far, which is that of the coming one; for `provisioning.bids.draw_bid`.
        self.decisions = 0
        #: Whether something changed that the stopping rule has not seen.
        self.judge_due = False
        #: Why the sweep stops before its end, "stop" or "budget"; empty while it does not.
        self.stopping = ""
        #: Why the sampler proposes no further settings; empty while it does.
        self.sampler_failure = ""
        #: Whether a step was done by any trial.
        self.is_proven = False
        #: Why machines failed before that, and why that ended the sweep; empty while it did not.
        self.early_failures: list[str] = []
        self.fault = ""
        #: How the sweep ended; None while it runs.
        self.outcome: Finish | None = None
        #: Whether the sweep was closed, and not opened again since.
        self.closed = False
        #: Whether the deadline has had no slack at a tick.
        self.is_on_demand = False

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
    def state(self) -> SweepState:
        """The state of the sweep."""
        return SweepState.RUNNING if self.outcome is None else self.outcome.state

    @property
    def may_buy(self) -> bool:
        """Whether machines are bought: it neither stops nor has ended."""
        return not (self.stopping or self.closed or self.fault or self.outcome is not None)

    @property
    def working(self) -> int:
        """Number of machines that count in `parallel`: ordered ones, and those that train a trial."""
        return len(self.open_orders) + sum(deployment.works for deployment in self.living.values())

    @property
    def rule(self) -> TrialStoppingRule:
        """The stopping rule."""
        if self._rule is None:
            raise SweepError("the sweep was not opened")
        return self._rule

    # -- events and orders ----------------------------------------------------------------------------

    def open(self, event: SweepOpened) -> None:
        """Take the terms of the sweep."""
        if self._opened is not None:
            raise SweepError(f"sweep {event.sweep_id} was opened before")
        self._rule = self._rule or stopping_rule(event.plan.stop)
        self._opened = event
        self._times = StepTimes(event.types, event.step_seconds)
        self.holdings.open(event)

    def extend(self, trials: int) -> None:
        """Take more trials."""
        if trials <= self.plan.trials:
            raise SweepError(f"the sweep has {self.plan.trials} trials: {trials} are no more")
        self._opened = replace(self.opened, plan=replace(self.plan, trials=trials))

    def follow(self, decided: Sequence[Deploy], recorded: Sequence[Deploy]) -> None:
        """Take the purchases that a journal recorded at an event in place of those that are decided again by it.

        Parameters
        ----------
        decided : new deployments that the event has just led to.
        recorded : deployments that were recorded for it, repeated ones included.

        Notes
        -----
        What was bought is a fact, whatever a later version of the rules would have bought.
        """
        names = {order.order_id for order in recorded}
        for order in decided:
            if order.order_id not in names:
                trial = self.trials[order.trial]
                trial.deployments.remove(self.deployments.pop(order.order_id))
                trial.orders -= 1
                del self.open_orders[order.order_id]
        for order in recorded:
            known = self.deployments.get(order.order_id)
            if known is None and order.trial in self.trials:
                self.trials[order.trial].orders += 1
                self.enter_order(order)
                self.outcome = None
            elif known is not None and order.order_id in self.open_orders:
                known.market, known.from_step, known.until_step = order.market, order.from_step, order.until_step
                self.open_orders[order.order_id] = order

    def enter_order(self, order: Deploy) -> None:
        """Enter a deployment that is ordered now."""
        deployment = Deployment(order.order_id, order.trial, order.market, order.from_step, order.until_step)
        self.trials[order.trial].deployments.append(deployment)
        self.open_orders[order.order_id], self.deployments[order.order_id] = order, deployment
