"""What machines and reports do to the trials of a sweep: grants, losses, values, states, failures."""

import re
from collections.abc import Sequence
from dataclasses import replace

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    NoticeSeen,
)
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes
from proteus_spot.bidding.tuning.stopping import stopping_rule
from proteus_spot.bidding.tuning.sweep_events import SweepOpened, TrialReported, TrialsProposed
from proteus_spot.bidding.tuning.sweep_orders import Deploy
from proteus_spot.bidding.tuning.sweep_record import SweepError, SweepRecord
from proteus_spot.bidding.tuning.trials import ENDS, Deployment, SweepState, TrialRecord, TrialState

#: Failures at one step, or deployments in a row without progress, after which a trial is given up; equal failures
#: before the first step of a sweep after which the sweep is.
MOST_FAILURES = 3
#: Deployments in a row that may end without progress because the market takes their machines.
MOST_IDLE = 20


class SweepTrials(SweepRecord):
    """A sweep whose trials follow the events of their machines; parameters as `SweepRecord`'s."""

    # -- events -----------------------------------------------------------------------------------------------

    def _handle_opened(self, event: SweepOpened) -> None:
        if self._opened is not None:
            raise SweepError(f"sweep {event.sweep_id} was opened before")
        self._rule = self._given_rule or stopping_rule(event.plan.stop)
        self._opened = event
        self._times = StepTimes(event.types, event.step_seconds)
        self.holdings.open(event)

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
        if event.allocation.market.instance_type not in self.holdings.types:
            raise SweepError(f"{event.order_id}: no such type as {event.allocation.market} in the sweep")
        self._open.pop(event.order_id, None)
        was_known = event.allocation.allocation_id in self.holdings.positions
        position = self.holdings.grant(event)
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
        self.holdings.refuse(order.market, event.code, event.at_s)
        self._deployments[event.order_id].is_refused = True
        trial = self._trials[order.trial]
        trial.deployments.remove(self._deployments[event.order_id])
        self._note_arrival(trial)

    def _handle_machines(self, event: NoticeSeen | MachineNoticed | AllocationGone | MachineGone | MachineSeen) -> None:
        position = self.holdings.positions.get(event.allocation_id)
        if position is None:
            raise SweepError(f"no allocation {event.allocation_id!r} was granted")
        was_gone = position.standing is AllocationState.GONE
        self.holdings.apply(position, event)
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
        if event.done_step is not None:
            deployment.done_step = min(event.done_step, self.plan.max_trial_steps)
        if event.values or event.step_s is not None or event.saved_step:
            self._is_proven = True
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
            self._pause_at_target(trial, has_last_word=deployment.done_step >= trial.until_step)
        else:
            deployment.is_evicted = self.holdings.standing(deployment.order_id) is AllocationState.NOTICED
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

    def _pause_at_target(self, trial: TrialRecord, *, has_last_word: bool = False) -> None:
        """Pause a trial for the stopping rule's verdict; one whose metric was lost with its machine has none.

        After the last word of a deployment nothing is lost: its metric is not reported at each step.
        """
        if trial.curve.last_step >= trial.until_step or (has_last_word and len(trial.curve)):
            trial.state, trial.why = TrialState.PAUSED, ""
            return
        lost = f"its metric at step {trial.until_step} was not reported, so it runs all steps"
        trial.until_step = self.plan.max_trial_steps
        trial.state, trial.why = TrialState.PAUSED if self._stop_why else TrialState.WAITING, lost

    def _fail(self, trial: TrialRecord, step: int, why: str) -> None:
        self._note_early_failure(step, why)
        count = trial.failures[step] = trial.failures.get(step, 0) + 1
        if count >= MOST_FAILURES:
            trial.state, trial.why = TrialState.FAILED, why
            self._judge_due = True
            return
        self._leave(trial, TrialState.WAITING)
        if not trial.has_ended:
            trial.why = f"failed {count} of {MOST_FAILURES} times at step {step}: {why}"

    def _note_early_failure(self, step: int, why: str) -> None:
        """Count a failure before any step of the sweep; after equal ones no trial is tried any more."""
        if not self.plan.probe or self._is_proven or step > 0 or self._fault:
            return
        # Two processes print the same object with other addresses.
        self._early_failures.append(re.sub(r"0x[0-9a-f]+", "0x", why))
        newest = self._early_failures[-MOST_FAILURES:]
        if len(newest) == MOST_FAILURES and len(set(newest)) == 1:
            self._fault = f"{MOST_FAILURES} tries failed alike before the first step: {why}"

    def _give_up_idle(self, trial: TrialRecord) -> None:
        """Give up a trial whose newest deployments have brought nothing: each costs, and the next would not end it."""
        idle = trial.idle
        own = [deployment for deployment in idle if not deployment.was_interrupted]
        if len(own) < MOST_FAILURES and len(idle) < MOST_IDLE:
            return
        count, step = (len(own), idle[0].from_step) if len(own) >= MOST_FAILURES else (len(idle), idle[0].from_step)
        why = f"{count} tries in a row ended without progress: none saved a state after step {step}"
        most = max(deployment.reached_step for deployment in idle)
        trial.state, trial.why = TrialState.FAILED, f"{why} (they reached step {most}); save at more steps"
        self._judge_due = True

    # -- orders that were recorded ----------------------------------------------------------------------------

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
                trial = self._trials[order.trial]
                trial.deployments.remove(self._deployments.pop(order.order_id))
                trial.orders -= 1
                del self._open[order.order_id]
        for order in recorded:
            known = self._deployments.get(order.order_id)
            if known is None and order.trial in self._trials:
                self._trials[order.trial].orders += 1
                self._enter_order(order)
                self._outcome = None
            elif known is not None and order.order_id in self._open:
                known.market, known.from_step, known.until_step = order.market, order.from_step, order.until_step
                self._open[order.order_id] = order

    def _enter_order(self, order: Deploy) -> None:
        deployment = Deployment(order.order_id, order.trial, order.market, order.from_step, order.until_step)
        self._trials[order.trial].deployments.append(deployment)
        self._open[order.order_id], self._deployments[order.order_id] = order, deployment

    # -- ends -------------------------------------------------------------------------------------------------

    def _stop(self, why: str) -> None:
        if self._stop_why or self._closed or self._outcome is not None:
            return
        self._stop_why = why
        for trial in self._trials.values():
            if trial.state in (TrialState.WAITING, TrialState.EVICTED) and trial.deployments:
                trial.state = TrialState.PAUSED

    def _handle_extended(self, trials: int) -> None:
        """Take more trials; what stopped the sweep, or ended it, holds no longer."""
        if trials <= self.plan.trials:
            raise SweepError(f"the sweep has {self.plan.trials} trials: {trials} are no more")
        self._opened = replace(self.opened, plan=replace(self.plan, trials=trials))
        self._handle_reopened()

    def _handle_reopened(self) -> None:
        has_failed = self._outcome is not None and self._outcome.state is SweepState.FAILED
        self._closed, self._stop_why, self._outcome, self._sampler_failure = False, "", None, ""
        self._fault, self._judge_due = "", True
        self._early_failures.clear()
        for trial in self._trials.values():
            if trial.state is TrialState.FAILED and has_failed:
                trial.failures.clear()
                trial.state, trial.excused = TrialState.WAITING, len(trial.deployments)
            if trial.state is TrialState.PAUSED and trial.steps < trial.until_step:
                trial.state = TrialState.WAITING
            elif trial.state is TrialState.PAUSED:  # a report that came after the stop had the state of its target
                self._arrive(trial)
