"""The state of a sweep: its machines, trials and deployments, views of them, and the orders that enter it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from proteus_spot.bidding.engine.allocations import AllocationState, HeldAllocation, HeldMachine, MachineState
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    BidEvent,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    NoticeSeen,
)
from proteus_spot.bidding.market.failures import Failure, failure_of
from proteus_spot.bidding.market.model import HOUR_S, EndCause, InstanceType, Market
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes
from proteus_spot.bidding.tuning.stopping import stopping_rule
from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule
from proteus_spot.bidding.tuning.sweep_events import SweepOpened
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import Deployment, SweepState, TrialRecord

#: Seconds for which a refusal for the account's quota limits the purchases that follow.
QUOTA_S = HOUR_S


class SweepHoldings:
    """Allocations by id, as the market's events leave them; one deployment each."""

    def __init__(self) -> None:
        #: The sweep's id, None before `SweepOpened`, and the instance types on sale.
        self.job_id: str | None = None
        self.types: Mapping[str, InstanceType] = {}
        #: Seconds without a request to a market after it refused one.
        self._cooldown_s = 0
        #: Allocation id -> position, in the order of the grants; ended ones stay, for the record.
        self.positions: dict[str, HeldAllocation] = {}
        #: Market -> end of its cooldown, because it refused or takes what it sold.
        self._cooling: dict[Market, int] = {}
        #: vCPUs of a purchase that the account's quota refused, and until when it is believed to refuse such.
        self._quota_vcpus: int | None = None
        self._quota_until_s = 0
        #: Since when the market lists none of the machines that live by the book; None while it lists some.
        self.unlisted_since_s: int | None = None
        #: When a tick decided last; None before the first.
        self.ticked_at_s: int | None = None

    def open(self, event: SweepOpened) -> None:
        """Take the terms of the sweep."""
        self.job_id, self.types, self._cooldown_s = event.sweep_id, event.types, event.plan.cooldown_s

    def note_tick(self, at_s: int) -> None:
        """Note that a tick decides."""
        self.unlisted_since_s = None
        self.ticked_at_s = at_s

    def quota_vcpus(self, at_s: int) -> int | None:
        """Return the vCPUs of a purchase that the account's quota refused, while it is believed to refuse such."""
        return self._quota_vcpus if at_s < self._quota_until_s else None

    def standing(self, allocation_id: str) -> AllocationState:
        """Return the state of an allocation; one that was never granted is gone."""
        position = self.positions.get(allocation_id)
        return AllocationState.GONE if position is None else position.standing

    def cooling(self, at_s: int) -> dict[Market, int]:
        """Return the markets that are left alone at a time, each with the end of its cooldown."""
        self._cooling = {market: until_s for market, until_s in self._cooling.items() if until_s > at_s}
        return self._cooling

    def cool(self, market: Market, at_s: int) -> None:
        """Leave a market alone from now on, for the cooldown."""
        self._cool(market, at_s + self._cooldown_s)

    def refuse(self, market: Market, code: str, at_s: int) -> None:
        """Note that a purchase was refused: by the account's quota, or by the market, which is left alone then."""
        if failure_of(code) is Failure.QUOTA:
            # The quota is the account's, not the market's: a smaller machine fits in, perhaps, or one after another.
            self._quota_vcpus, self._quota_until_s = self.types[market.instance_type].vcpu, at_s + QUOTA_S
        else:
            self.cool(market, at_s)

    def grant(self, event: AllocationGranted) -> HeldAllocation:
        """Enter an allocation, if it was not yet."""
        name = event.allocation.allocation_id
        if name not in self.positions:
            machines = {machine: HeldMachine() for machine in event.instance_ids}
            self.positions[name] = HeldAllocation(event.allocation, machines)
        return self.positions[name]

    def apply(self, position: HeldAllocation, event: BidEvent) -> None:
        """Apply what happened to the machines of an allocation."""
        match event:
            case NoticeSeen():
                held = [machine for machine in position.machines.values() if machine.state is MachineState.HELD]
                self._notice(position, held, event.takes_at_s)
            case MachineNoticed():
                machine = position.machine(event.instance_id)
                self._notice(position, [machine] if machine.state is not MachineState.GONE else [], event.takes_at_s)
            case AllocationGone():
                self._end(position, position.living(), event.at_s, event.cause)
            case MachineGone():
                is_gone = position.machine(event.instance_id).state is MachineState.GONE
                self._end(position, [] if is_gone else [event.instance_id], event.at_s, event.cause)
            case MachineSeen():
                position.machine(event.instance_id)
                position.machines[event.instance_id] = HeldMachine()
                position.update()

    def _notice(self, position: HeldAllocation, machines: list[HeldMachine], takes_at_s: int) -> None:
        for machine in machines:
            machine.state, machine.takes_at_s = MachineState.NOTICED, takes_at_s
        if machines:
            position.update()
            # A market that is about to take machines would sell one and take it, too.
            self._cool(position.allocation.market, takes_at_s + 1)

    def _end(self, position: HeldAllocation, names: list[str], at_s: int, cause: EndCause) -> None:
        for name in names:
            position.machines[name] = HeldMachine(MachineState.GONE, ended_at_s=at_s, cause=cause)
        position.update()
        if names:
            self._quota_vcpus = None  # a machine less: the next one may fit in
        if names and cause is EndCause.FAILED:
            self.cool(position.allocation.market, at_s)

    def _cool(self, market: Market, until_s: int) -> None:
        self._cooling[market] = max(self._cooling.get(market, until_s), until_s)


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
