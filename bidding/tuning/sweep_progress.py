"""What machines and reports do to the trials of a sweep: grants, losses, values, states, failures."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    MarketCooled,
    NoticeSeen,
)
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.tuning.sweep_events import (
    SamplerFailed,
    SweepClosed,
    SweepExtended,
    SweepOpened,
    SweepReopened,
    SweepStopRequested,
    TrialReported,
    TrialsProposed,
)
from proteus_spot.bidding.tuning.sweep_record import SweepError, SweepRecord
from proteus_spot.bidding.tuning.trials import ENDS, Deployment, SweepState, TrialRecord, TrialState

#: Failures at one step, or deployments in a row without progress, after which a trial is given up; equal failures
#: before the first step of a sweep after which the sweep is.
MOST_FAILURES = 3
#: Deployments in a row that may end without progress because the market takes their machines.
MOST_IDLE = 20


class TrialProgress:
    """Has the trials of a sweep follow the events of their machines.

    Attributes
    ----------
    handlers : mapping
        What follows of each kind of event but a tick.
    """

    def __init__(self, sweep: SweepRecord) -> None:
        self._sweep, self._holdings = sweep, sweep.holdings
        self.handlers: Mapping[type[BidEvent], Callable[[Any], None]] = MappingProxyType(
            {
                SweepOpened: sweep.open,
                TrialsProposed: self._handle_proposed,
                SamplerFailed: self._handle_sampler_failed,
                TrialReported: self._handle_report,
                AllocationGranted: self._handle_granted,
                AllocationRefused: self._handle_refused,
                NoticeSeen: self._handle_machines,
                MachineNoticed: self._handle_machines,
                MachineSeen: self._handle_machines,
                MachineGone: self._handle_machines,
                AllocationGone: self._handle_machines,
                MachinesUnlisted: self._handle_unlisted,
                MarketCooled: self._handle_cooled,
                SweepStopRequested: self._handle_stop,
                SweepReopened: self._handle_reopened,
                SweepExtended: self._handle_extended,
                SweepClosed: self._handle_closed,
            }
        )

    # -- events -----------------------------------------------------------------------------------------------

    def _handle_proposed(self, event: TrialsProposed) -> None:
        sweep = self._sweep
        target = sweep.rule.first_target(sweep.plan)
        for setting in event.settings:
            if not 0 <= setting.number < sweep.plan.trials:
                raise SweepError(f"trial {setting.number} of {sweep.plan.trials}: there is no such trial")
            if setting.number not in sweep.trials:
                sweep.trials[setting.number] = TrialRecord(setting.number, setting.params, target)
                sweep.judge_due = True

    def _handle_sampler_failed(self, event: SamplerFailed) -> None:
        sweep = self._sweep
        if sweep.sampler_failure or len(sweep.trials) == sweep.plan.trials:
            return
        sweep.sampler_failure = f"only {len(sweep.trials)} of {sweep.plan.trials} trials were proposed: {event.why}"
        sweep.judge_due = True

    def _handle_granted(self, event: AllocationGranted) -> None:
        sweep = self._sweep
        if event.allocation.market.instance_type not in self._holdings.types:
            raise SweepError(f"{event.order_id}: no such type as {event.allocation.market} in the sweep")
        sweep.open_orders.pop(event.order_id, None)
        was_known = event.allocation.allocation_id in self._holdings.positions
        position = self._holdings.grant(event)
        deployment = sweep.deployments.get(event.order_id)
        if deployment is None:
            sweep.strays[event.allocation.allocation_id] = position
            return
        if was_known or deployment.is_granted:
            return
        if deployment.is_refused or sweep.stopping or sweep.closed or sweep.trials[deployment.trial].has_ended:
            deployment.release_why = "it was granted when its trial did not need it any more"
        deployment.is_granted, deployment.granted_at_s = True, event.at_s
        sweep.living[event.order_id] = deployment
        if deployment.works:
            trial = sweep.trials[deployment.trial]
            trial.state, trial.why = TrialState.RUNNING, ""

    def _handle_refused(self, event: AllocationRefused) -> None:
        sweep = self._sweep
        order = sweep.open_orders.pop(event.order_id, None)
        if order is None:
            return
        self._holdings.refuse(order.market, event.code, event.at_s)
        sweep.deployments[event.order_id].is_refused = True
        trial = sweep.trials[order.trial]
        trial.deployments.remove(sweep.deployments[event.order_id])
        self._note_arrival(trial)

    def _handle_unlisted(self, event: MachinesUnlisted) -> None:
        if self._holdings.unlisted_since_s is None:
            self._holdings.unlisted_since_s = event.at_s

    def _handle_cooled(self, event: MarketCooled) -> None:
        self._holdings.cool(event.market, event.at_s)

    def _handle_machines(self, event: NoticeSeen | MachineNoticed | AllocationGone | MachineGone | MachineSeen) -> None:
        sweep = self._sweep
        position = self._holdings.positions.get(event.allocation_id)
        if position is None:
            raise SweepError(f"no allocation {event.allocation_id!r} was granted")
        was_gone = position.standing is AllocationState.GONE
        self._holdings.apply(position, event)
        deployment = sweep.deployments.get(event.allocation_id)
        is_gone = position.standing is AllocationState.GONE
        if deployment is None or is_gone == was_gone:
            return
        deployment.is_gone = is_gone
        if is_gone:
            sweep.living.pop(event.allocation_id, None)
            self._handle_loss(deployment, position.cause)
        else:  # its end was reported by mistake
            sweep.living[event.allocation_id] = deployment
            self._handle_return(deployment)

    def _handle_loss(self, deployment: Deployment, cause: EndCause | None) -> None:
        trial = self._sweep.trials[deployment.trial]
        was_taken = cause is EndCause.EVICTED
        deployment.is_evicted = deployment.is_evicted or (was_taken and not deployment.ended)
        if trial.present is not deployment or deployment.ended or deployment.release_why:
            return
        # Whether this is a failure is decided when the trial is deployed again: a report may still say how it ended.
        deployment.is_lost = cause is EndCause.USER and not deployment.pause_why
        self.leave(trial, TrialState.EVICTED if was_taken else TrialState.WAITING)

    def _handle_return(self, deployment: Deployment) -> None:
        trial = self._sweep.trials[deployment.trial]
        deployment.is_evicted = deployment.is_lost = False
        if trial.present is not deployment or trial.has_ended or self._sweep.stopping:
            deployment.release_why = deployment.release_why or "its trial does not need it any more"
        elif deployment.works:
            trial.state, trial.why = TrialState.RUNNING, ""

    # -- reports ----------------------------------------------------------------------------------------------

    def _handle_report(self, event: TrialReported) -> None:
        sweep = self._sweep
        deployment, trial = sweep.deployments.get(event.deployment), sweep.trials.get(event.trial)
        if deployment is None or trial is None or deployment.trial != event.trial:
            raise SweepError(f"trial {event.trial} has no deployment {event.deployment!r}")
        if event.ended is not None and event.ended not in ENDS:
            raise SweepError(f"{event.deployment}: a trial does not end as {event.ended!r}")
        deployment.has_reported = True
        if event.step_s is not None:
            sweep.step_times.measure(trial.number, deployment.market.instance_type, event.step_s)
        if event.upload_s is not None:
            trial.upload_s, trial.state_bytes = event.upload_s, event.state_bytes or 0
        deployment.state_s = (event.restore_s or 0.0) + event.save_s + (event.upload_s or 0.0)
        if event.done_step is not None:
            deployment.done_step = min(event.done_step, sweep.plan.max_trial_steps)
        if event.values or event.step_s is not None or event.saved_step:
            sweep.is_proven = True
        if event.saved_step is not None:
            deployment.saved_step = max(deployment.saved_step, min(event.saved_step, sweep.plan.max_trial_steps))
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
        sweep = self._sweep
        curve, most = trial.curve, sweep.plan.max_trial_steps
        if is_present:
            last = deployment.reported_step
            fresh = {step: value for step, value in values if last < step <= most}
            if fresh:
                steps = sorted(fresh)
                trial.repeated_steps += curve.extend(steps, [fresh[step] for step in steps])
                deployment.reported_step = steps[-1]
                sweep.judge_due = True
            if len(fresh) < len(values):  # it reported these before; the last report of a step counts
                for step, value in values:
                    if 0 < step <= last:
                        curve.put(step, value)
            return
        for step, value in values:
            if 0 < step <= deployment.saved_step and not curve.has(step):
                curve.put(step, value)
                sweep.judge_due = True

    def _handle_end(self, trial: TrialRecord, deployment: Deployment, why: str) -> None:
        """Decide in which state a trial is whose process has ended."""
        reached = deployment.reached_step
        self._sweep.judge_due = True
        if deployment.ended == "failed":
            self.fail(trial, reached, why or "it failed without a message")
        elif reached >= self._sweep.plan.max_trial_steps or (
            deployment.ended == "finished" and reached < trial.until_step
        ):
            trial.state, trial.why = TrialState.FINISHED, why
            if not len(trial.curve):
                trial.state, trial.why = TrialState.FAILED, why or "it ended without a report of its metric"
        elif trial.closing is not None:
            trial.state = trial.closing
        elif reached >= trial.until_step:
            self._pause_at_target(trial, has_last_word=deployment.done_step >= trial.until_step)
        else:
            deployment.is_evicted = self._holdings.standing(deployment.order_id) is AllocationState.NOTICED
            self.leave(trial, TrialState.EVICTED if deployment.is_evicted else TrialState.WAITING)

    def leave(self, trial: TrialRecord, state: TrialState) -> None:
        """Note that a trial has no machine any more, before its target."""
        if trial.closing is not None:
            trial.state = trial.closing
        elif trial.saved_step >= trial.until_step:
            self._arrive(trial)
        else:
            trial.state = TrialState.PAUSED if self._sweep.stopping else state

    def _note_arrival(self, trial: TrialRecord) -> None:
        """Note that a trial that waits for a machine needs none: a late report had the state of its target."""
        if trial.waits and trial.saved_step >= trial.until_step:
            self._arrive(trial)

    def _arrive(self, trial: TrialRecord) -> None:
        self._sweep.judge_due = True
        if trial.saved_step >= self._sweep.plan.max_trial_steps:
            trial.state, trial.why = TrialState.FINISHED, ""
        else:
            self._pause_at_target(trial)

    def _pause_at_target(self, trial: TrialRecord, *, has_last_word: bool = False) -> None:
        """Pause a trial for the stopping rule's verdict; one whose metric was lost with its machine has none.

        After the last word of a deployment nothing is lost: its metric is not reported at each step.
        """
        if trial.curve.last_step >= trial.until_step or (has_last_word and len(trial.curve)):
            trial.state, trial.why = TrialState.PAUSED, ""
            return
        lost = f"its metric at step {trial.until_step} was not reported, so it runs all steps"
        trial.until_step = self._sweep.plan.max_trial_steps
        trial.state, trial.why = TrialState.PAUSED if self._sweep.stopping else TrialState.WAITING, lost

    def fail(self, trial: TrialRecord, step: int, why: str) -> None:
        """Count a failure of a trial at a step; after as many as it may have it has failed."""
        self._note_early_failure(step, why)
        count = trial.failures[step] = trial.failures.get(step, 0) + 1
        if count >= MOST_FAILURES:
            trial.state, trial.why = TrialState.FAILED, why
            self._sweep.judge_due = True
            return
        self.leave(trial, TrialState.WAITING)
        if not trial.has_ended:
            trial.why = f"failed {count} of {MOST_FAILURES} times at step {step}: {why}"

    def _note_early_failure(self, step: int, why: str) -> None:
        """Count a failure before any step of the sweep; after equal ones no trial is tried any more."""
        sweep = self._sweep
        if not sweep.plan.probe or sweep.is_proven or step > 0 or sweep.fault:
            return
        # Two processes print the same object with other addresses.
        sweep.early_failures.append(re.sub(r"0x[0-9a-f]+", "0x", why))
        newest = sweep.early_failures[-MOST_FAILURES:]
        if len(newest) == MOST_FAILURES and len(set(newest)) == 1:
            sweep.fault = f"{MOST_FAILURES} tries failed alike before the first step: {why}"

    def give_up_idle(self, trial: TrialRecord) -> None:
        """Give up a trial whose newest deployments have brought nothing: each costs, and the next would not end it."""
        idle = trial.idle
        own = [deployment for deployment in idle if not deployment.was_interrupted]
        if len(own) < MOST_FAILURES and len(idle) < MOST_IDLE:
            return
        count, step = (len(own), idle[0].from_step) if len(own) >= MOST_FAILURES else (len(idle), idle[0].from_step)
        why = f"{count} tries in a row ended without progress: none saved a state after step {step}"
        most = max(deployment.reached_step for deployment in idle)
        trial.state, trial.why = TrialState.FAILED, f"{why} (they reached step {most}); save at more steps"
        self._sweep.judge_due = True

    # -- ends -------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Stop the sweep; what waits for a machine pauses."""
        sweep = self._sweep
        if sweep.stopping or sweep.closed or sweep.outcome is not None:
            return
        sweep.stopping = why
        for trial in sweep.trials.values():
            if trial.state in (TrialState.WAITING, TrialState.EVICTED) and trial.deployments:
                trial.state = TrialState.PAUSED

    def _handle_stop(self, event: SweepStopRequested) -> None:
        self.stop(event.why)

    def _handle_closed(self, event: SweepClosed) -> None:
        # An unanswered purchase stays open until the caller has found out whether it was made.
        self._sweep.closed = True

    def _handle_extended(self, event: SweepExtended) -> None:
        """Take more trials; what stopped the sweep, or ended it, holds no longer."""
        self._sweep.extend(event.trials)
        self._handle_reopened(event)

    def _handle_reopened(self, event: SweepReopened | SweepExtended) -> None:
        sweep = self._sweep
        has_failed = sweep.outcome is not None and sweep.outcome.state is SweepState.FAILED
        sweep.closed, sweep.stopping, sweep.outcome, sweep.sampler_failure = False, "", None, ""
        sweep.fault, sweep.judge_due = "", True
        sweep.early_failures.clear()
        for trial in sweep.trials.values():
            if trial.state is TrialState.FAILED and has_failed:
                trial.failures.clear()
                trial.state, trial.excused = TrialState.WAITING, len(trial.deployments)
            if trial.state is TrialState.PAUSED and trial.steps < trial.until_step:
                trial.state = TrialState.WAITING
            elif trial.state is TrialState.PAUSED:  # a report that came after the stop had the state of its target
                self._arrive(trial)
