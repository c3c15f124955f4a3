"""What happened in a sweep: its trials, deployments and machines, as events leave them. Decisions are the engine's."""

from collections.abc import Mapping, Sequence

from bidding.engine.allocations import AllocationState, HeldAllocation
from bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    NoticeSeen,
)
from bidding.market.failures import Failure, failure_of
from bidding.market.model import HOUR_S, EndCause, InstanceType
from bidding.tuning.events import SweepOpened, TrialReported, TrialsProposed
from bidding.tuning.machines import SweepMachines
from bidding.tuning.orders import Deploy, Finish
from bidding.tuning.plan import SweepPlan
from bidding.tuning.step_cost import StepTimes
from bidding.tuning.stopping import stopping_rule
from bidding.tuning.stopping.base import TrialStoppingRule
from bidding.tuning.trials import ENDS, Deployment, SweepState, TrialRecord, TrialState

#: Seconds for which a refusal for the account's quota limits the purchases that follow.
QUOTA_S = HOUR_S
#: Failures at one step after which a trial is given up.
MOST_FAILURES = 3


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
        self._machines = SweepMachines(0)
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
        self._outcome: Finish | None = None
        self._closed = False
        #: Whether the deadline has had no slack at a tick.
        self._is_on_demand = False
        #: vCPUs of a purchase that the account's quota refused, and until when it is believed to refuse such.
        self._quota_vcpus: int | None = None
        self._quota_until_s = 0
        self._unlisted_since_s: int | None = None
        self._ticked_at_s: int | None = None

    # -- views ------------------------------------------------------------------------------------------------

    @property
    def job_id(self) -> str | None:
        """The sweep's id; None before `SweepOpened`."""
        return self._opened.sweep_id if self._opened else None

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
    def types(self) -> Mapping[str, InstanceType]:
        """The instance types on sale."""
        return self.opened.types

    @property
    def step_times(self) -> StepTimes:
        """The matrix M."""
        if self._times is None:
            raise SweepError("the sweep was not opened")
        return self._times

    @property
    def positions(self) -> Mapping[str, HeldAllocation]:
        """Every allocation granted so far, by id, in the order of the grants."""
        return self._machines.positions

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
        """Number of decision points so far, which is that of the coming one; for `bids.draw_bid`."""
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
    def ticked_at_s(self) -> int | None:
        """When a tick decided last; None before the first."""
        return self._ticked_at_s

    @property
    def unlisted_since_s(self) -> int | None:
        """Since when the market lists none of the machines that live by the book; None while it lists some."""
        return self._unlisted_since_s

    @property
    def working(self) -> int:
        """Number of machines that count in `parallel`: ordered ones, and those that train a trial."""
        return len(self._open) + sum(deployment.works for deployment in self._living.values())

    # -- events -----------------------------------------------------------------------------------------------

    def _handle_opened(self, event: SweepOpened) -> None:
        if self._opened is not None:
            raise SweepError(f"sweep {event.sweep_id} was opened before")
        self._rule = self._given_rule or stopping_rule(event.plan.stop)
        self._opened = event
        self._times = StepTimes(event.types, event.step_seconds)
        self._machines = SweepMachines(event.plan.cooldown_s)

    def _handle_proposed(self, event: TrialsProposed) -> None:
        target = self._rule_of_sweep().first_target(self.plan)
        for setting in event.settings:
            if not 0 <= setting.number < self.plan.trials:
                raise SweepError(f"trial {setting.number} of {self.plan.trials}: there is no such trial")
            if setting.number not in self._trials:
                self._trials[setting.number] = TrialRecord(setting.number, setting.params, target)
                self._judge_due = True

    def _handle_sampler_failed(self, why: str) -> None:
        if self._sampler_failure or len(self._trials) == self.plan.trials:
            return
        self._sampler_failure = f"only {len(self._trials)} of {self.plan.trials} trials were proposed: {why}"
        self._judge_due = True

    def _handle_granted(self, event: AllocationGranted) -> None:
        if event.allocation.market.instance_type not in self.types:
            raise SweepError(f"{event.order_id}: no such type as {event.allocation.market} in the sweep")
        self._open.pop(event.order_id, None)
        was_known = event.allocation.allocation_id in self.positions
        position = self._machines.grant(event)
        deployment = self._deployments.get(event.order_id)
        if deployment is None:
            self._strays[event.allocation.allocation_id] = position
            return
        if was_known or deployment.is_granted:
            return
        if deployment.is_refused or self._stop_why or self._closed or self._trials[deployment.trial].has_ended:
            deployment.release_why = "it was granted when its trial did not need it any more"
        deployment.is_granted, deployment.granted_at_s = True, event.at_s
        self._living[event.order_id] = deployment
        if deployment.works:
            trial = self._trials[deployment.trial]
            trial.state, trial.why = TrialState.RUNNING, ""

    def _handle_refused(self, event: AllocationRefused) -> None:
        order = self._open.pop(event.order_id, None)
        if order is None:
            return
        if failure_of(event.code) is Failure.QUOTA:
            # The quota is the account's, not the market's: a smaller machine fits in, perhaps, or one after another.
            self._quota_vcpus = self.types[order.market.instance_type].vcpu
            self._quota_until_s = event.at_s + QUOTA_S
        else:
            self._machines.cool(order.market, event.at_s)
        self._deployments[event.order_id].is_refused = True
        trial = self._trials[order.trial]
        trial.deployments.remove(self._deployments[event.order_id])
        self._note_arrival(trial)

    def _handle_unlisted(self, event: MachinesUnlisted) -> None:
        self._unlisted_since_s = event.at_s if self._unlisted_since_s is None else self._unlisted_since_s

    def _handle_machines(self, event: NoticeSeen | MachineNoticed | AllocationGone | MachineGone | MachineSeen) -> None:
        position = self.positions.get(event.allocation_id)
        if position is None:
            raise SweepError(f"no allocation {event.allocation_id!r} was granted")
        was_gone = position.standing is AllocationState.GONE
        self._machines.apply(position, event)
        deployment = self._deployments.get(event.allocation_id)
        is_gone = position.standing is AllocationState.GONE
        if deployment is None or is_gone == was_gone:
            return
        deployment.is_gone = is_gone
        if is_gone:
            self._living.pop(event.allocation_id, None)
            self._handle_loss(deployment, position.cause)
        else:  # its end was reported by mistake
            self._living[event.allocation_id] = deployment
            self._handle_return(deployment)

    def _handle_loss(self, deployment: Deployment, cause: EndCause | None) -> None:
        trial = self._trials[deployment.trial]
        was_taken = cause is EndCause.EVICTED
        deployment.is_evicted = deployment.is_evicted or (was_taken and not deployment.ended)
        self._quota_vcpus = None  # a machine less: the next one may fit in
        if trial.present is not deployment or deployment.ended or deployment.release_why:
            return
        # Whether this is a failure is decided when the trial is deployed again: a report may still say how it ended.
        deployment.is_lost = cause is EndCause.USER and not deployment.pause_why
        self._leave(trial, TrialState.EVICTED if was_taken else TrialState.WAITING)

    def _handle_return(self, deployment: Deployment) -> None:
        trial = self._trials[deployment.trial]
        deployment.is_evicted = deployment.is_lost = False
        if trial.present is not deployment or trial.has_ended or self._stop_why:
            deployment.release_why = deployment.release_why or "its trial does not need it any more"
        elif deployment.works:
            trial.state, trial.why = TrialState.RUNNING, ""

    # -- reports ----------------------------------------------------------------------------------------------

    def _handle_report(self, event: TrialReported) -> None:
        deployment, trial = self._deployments.get(event.deployment), self._trials.get(event.trial)
        if deployment is None or trial is None or deployment.trial != event.trial:
            raise SweepError(f"trial {event.trial} has no deployment {event.deployment!r}")
        if event.ended is not None and event.ended not in ENDS:
            raise SweepError(f"{event.deployment}: a trial does not end as {event.ended!r}")
        deployment.has_reported = True
        if event.step_s is not None:
            self.step_times.measure(trial.number, deployment.market.instance_type, event.step_s)
        if event.upload_s is not None:
            trial.upload_s, trial.state_bytes = event.upload_s, event.state_bytes or 0
        deployment.state_s = (event.restore_s or 0.0) + event.save_s + (event.upload_s or 0.0)
        if event.saved_step is not None:
            deployment.saved_step = max(deployment.saved_step, min(event.saved_step, self.plan.max_trial_steps))
            trial.saved_step = max(trial.saved_step, deployment.saved_step)
        is_present = trial.present is deployment and not deployment.ended and not trial.has_ended
        self._enter_values(trial, deployment, event.values, is_present)
        if is_present and event.ended is not None:
            deployment.ended = event.ended
            deployment.is_lost = False
            self._handle_end(trial, deployment, event.why)
        elif not is_present:
            self._note_arrival(trial)

    def _enter_values(
        self,
        trial: TrialRecord,
        deployment: Deployment,
        values: Sequence[tuple[int, float | None]],
        is_present: bool,
    ) -> None:
        curve, most = trial.curve, self.plan.max_trial_steps
        if is_present:
            last = deployment.reported_step
            fresh = {step: value for step, value in values if last < step <= most}
            if fresh:
                steps = sorted(fresh)
                trial.repeated_steps += curve.extend(steps, [fresh[step] for step in steps])
                deployment.reported_step = steps[-1]
                self._judge_due = True
            if len(fresh) < len(values):  # it reported these before; the last report of a step counts
                for step, value in values:
                    if 0 < step <= last:
                        curve.put(step, value)
            return
        for step, value in values:
            if 0 < step <= deployment.saved_step and not curve.has(step):
                curve.put(step, value)
                self._judge_due = True

    def _handle_end(self, trial: TrialRecord, deployment: Deployment, why: str) -> None:
        """Decide in which state a trial is whose process has ended."""
        reached = deployment.reached_step
        self._judge_due = True
        if deployment.ended == "failed":
            self._fail(trial, reached, why or "it failed without a message")
        elif reached >= self.plan.max_trial_steps or (deployment.ended == "finished" and reached < trial.until_step):
            trial.state, trial.why = TrialState.FINISHED, why
            if not len(trial.curve):
                trial.state, trial.why = TrialState.FAILED, why or "it ended without a report of its metric"
        elif trial.closing is not None:
            trial.state = trial.closing
        elif reached >= trial.until_step:
            self._pause_at_target(trial)
        else:
            deployment.is_evicted = self._machines.standing(deployment.order_id) is AllocationState.NOTICED
            self._leave(trial, TrialState.EVICTED if deployment.is_evicted else TrialState.WAITING)

    def _leave(self, trial: TrialRecord, state: TrialState) -> None:
        """Note that a trial has no machine any more, before its target."""
        if trial.closing is not None:
            trial.state = trial.closing
        elif trial.saved_step >= trial.until_step:
            self._arrive(trial)
        else:
            trial.state = TrialState.PAUSED if self._stop_why else state

    def _note_arrival(self, trial: TrialRecord) -> None:
        """Note that a trial that waits for a machine needs none: a late report had the state of its target."""
        if trial.waits and trial.saved_step >= trial.until_step:
            self._arrive(trial)

    def _arrive(self, trial: TrialRecord) -> None:
        self._judge_due = True
        if trial.saved_step >= self.plan.max_trial_steps:
            trial.state, trial.why = TrialState.FINISHED, ""
        else:
            self._pause_at_target(trial)

    def _pause_at_target(self, trial: TrialRecord) -> None:
        """Pause a trial for the stopping rule's verdict; one whose metric was lost with its machine has none."""
        if trial.curve.last_step >= trial.until_step:
            trial.state, trial.why = TrialState.PAUSED, ""
            return
        lost = f"its metric at step {trial.until_step} was not reported, so it runs all steps"
        trial.until_step = self.plan.max_trial_steps
        trial.state, trial.why = TrialState.PAUSED if self._stop_why else TrialState.WAITING, lost

    def _fail(self, trial: TrialRecord, step: int, why: str) -> None:
        count = trial.failures[step] = trial.failures.get(step, 0) + 1
        if count >= MOST_FAILURES:
            trial.state, trial.why = TrialState.FAILED, why
            self._judge_due = True
            return
        self._leave(trial, TrialState.WAITING)
        if not trial.has_ended:
            trial.why = f"failed {count} of {MOST_FAILURES} times at step {step}: {why}"

    # -- ends -------------------------------------------------------------------------------------------------

    def _stop(self, why: str) -> None:
        if self._stop_why or self._closed or self._outcome is not None:
            return
        self._stop_why = why
        for trial in self._trials.values():
            if trial.state in (TrialState.WAITING, TrialState.EVICTED) and trial.deployments:
                trial.state = TrialState.PAUSED

    def _handle_reopened(self) -> None:
        has_failed = self._outcome is not None and self._outcome.state is SweepState.FAILED
        self._closed, self._stop_why, self._outcome, self._sampler_failure = False, "", None, ""
        self._judge_due = True
        for trial in self._trials.values():
            if trial.state is TrialState.FAILED and has_failed:
                trial.failures.clear()
                trial.state = TrialState.WAITING
            if trial.state is TrialState.PAUSED and trial.steps < trial.until_step:
                trial.state = TrialState.WAITING
            elif trial.state is TrialState.PAUSED:  # a report that came after the stop had the state of its target
                self._arrive(trial)

    def _rule_of_sweep(self) -> TrialStoppingRule:
        if self._rule is None:
            raise SweepError("the sweep was not opened")
        return self._rule
