"""The engine of a sweep: a state machine with one entry point, `handle(event) -> orders`.

It uses no clock, no market, no predictor and no sampler: time, offers and settings come with the events, and the caller
carries out the orders and answers them with further events. Replaying the same events gives the same orders.

Invariants (`validate`): no trial is lost; a deployment continues from the trial's newest state; at most `parallel`
machines work at a time, counting what is ordered and not answered (machines that are to end, or that the market takes
after their trial has paused, do not count); nothing is bought once the sweep stops or has ended, until a
`SweepReopened`.

A tick repeats every deployment that was not answered, every pause that was not heeded, and every release of a machine
that lives. So an order survives a crash between its entry in the journal and its execution. A deployment that is open
when its trial ends or the sweep stops is not repeated: whether it was made is for the caller to find out, and `Finish`
waits for the answer. A machine that the market has noticed is not released: it is free if the market takes it first.

Source: SpotTune (ICDCS 2020), Algorithm 1.
Differs: decisions fall at ticks; a move after the first hour must be worth its cost; stopping rules beside EarlyCurve.
"""

from collections.abc import Iterator
from math import ceil

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.engine.orders import number_after, order_id_of
from proteus_spot.bidding.tuning.provisioning.trial_costs import MachineChoice
from proteus_spot.bidding.tuning.provisioning.trial_purchases import TickPurchases
from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule, Verdict, VerdictKind, never_proposed
from proteus_spot.bidding.tuning.sweep_events import SweepTick
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.sweep_progress import TrialProgress
from proteus_spot.bidding.tuning.sweep_record import SweepError, SweepRecord
from proteus_spot.bidding.tuning.trials import Deployment, SweepState, TrialRecord, TrialState

#: Longest time of a step that a move waits for, in mean step times.
STEP_MARGIN = 2.0
#: Begins the reason of a trial for which no market could be bought in.
_WAITED = "waited for a market"


class SweepEngine:
    """Decisions of one sweep. Its state changes only in `handle`.

    Parameters
    ----------
    rule : the stopping rule; None: the plan's, by its name. One that keeps what it computed saves a simulation time.

    Attributes
    ----------
    sweep : SweepRecord
        The state of the sweep.
    holdings : SweepHoldings
        The part of it that the market decides on: machines, cooldowns, the quota.
    """

    def __init__(self, rule: TrialStoppingRule | None = None) -> None:
        self.sweep = SweepRecord(rule)
        self.holdings = self.sweep.holdings
        self._progress = TrialProgress(self.sweep)

    def handle(self, event: BidEvent) -> tuple[SweepOrder, ...]:
        """Apply one event; return the orders, in sequence.

        Raises
        ------
        SweepError
            If the event is invalid in the present state.
        """
        if isinstance(event, SweepTick):
            return tuple(self._handle_tick(event))
        handler = self._progress.handlers.get(type(event))
        if handler is None:
            raise SweepError(f"no event of a sweep: {type(event).__name__}")
        handler(event)
        return ()

    @property
    def wants_trials(self) -> int:
        """Number of settings that the sampler should propose now."""
        sweep = self.sweep
        plan = sweep.plan
        missing = plan.trials - len(sweep.trials)
        if sweep.stopping or sweep.closed or sweep.sampler_failure or sweep.fault or missing <= 0:
            return 0
        if not plan.adaptive:
            return missing
        unfinished = (TrialState.WAITING, TrialState.RUNNING, TrialState.EVICTED)
        return min(missing, max(plan.parallel - sum(t.state in unfinished for t in sweep.trials.values()), 0))

    def wants_offers(self, at_s: int) -> bool:
        """Return whether a tick at `at_s` may buy or move anything; else its offers are not looked at."""
        sweep = self.sweep
        if self.holdings.job_id is None or not sweep.may_buy:
            return False
        if sweep.judge_due and any(trial.state is TrialState.PAUSED for trial in sweep.trials.values()):
            return True
        if sweep.working < sweep.plan.parallel and any(trial.waits for trial in sweep.trials.values()):
            return True
        return any(
            self._hour_is_over(deployment, at_s) or self._is_given_up(deployment, at_s)
            for deployment in sweep.living.values()
        )

    # -- decisions --------------------------------------------------------------------------------------------

    def _handle_tick(self, event: SweepTick) -> Iterator[SweepOrder]:
        sweep = self.sweep
        sweep.decisions += 1
        self.holdings.note_tick(event.at_s)
        if event.spending is not None and event.spending.is_reached:
            self._progress.stop("budget")
        if not (sweep.stopping or sweep.closed):
            self._judge()
        if sweep.fault:
            self._end_trials()
        self._look_at_probe(event.at_s)
        tick = self._purchases(event)
        yield from self._machine_orders(tick)
        if event.buy and sweep.may_buy:
            yield from self._deployments_of(tick)
            sweep.is_on_demand = tick.is_on_demand
        if not sweep.closed:
            yield from self._finish()

    def _purchases(self, event: SweepTick) -> TickPurchases:
        sweep = self.sweep
        opened, at_s = sweep.opened, event.at_s
        quota, cooling = self.holdings.quota_vcpus(at_s), self.holdings.cooling(at_s)
        return TickPurchases(
            opened.plan,
            opened.types,
            sweep.step_times,
            event,
            cooling,
            quota,
            sweep.is_on_demand,
            self._steps_left,
        )

    def _judge(self) -> None:
        """Ask the stopping rule, if something happened that it has not seen."""
        sweep = self.sweep
        if not sweep.judge_due:
            return
        sweep.judge_due = False
        views = [trial.view() for _, trial in sorted(sweep.trials.items())]
        if sweep.sampler_failure:  # rules wait for all trials of the plan: those that never come have failed
            views += [never_proposed(number) for number in range(len(views), sweep.plan.trials)]
        for number, verdict in sweep.rule.decide(views, sweep.plan).items():
            trial = sweep.trials[number]
            if not trial.has_ended and trial.closing is None:
                self._apply(trial, verdict)

    def _apply(self, trial: TrialRecord, verdict: Verdict) -> None:
        if verdict.predicted is not None:
            trial.predicted, trial.predicted_std = verdict.predicted, verdict.predicted_std
        present = trial.present
        match verdict.kind:
            case VerdictKind.GO_ON:  # a trial that runs to its old target still pauses there, and is deployed again
                trial.until_step = max(trial.until_step, min(verdict.until_step, self.sweep.plan.max_trial_steps))
                if trial.state is TrialState.PAUSED and trial.steps < trial.until_step:
                    trial.state, trial.why = TrialState.WAITING, verdict.why
            case VerdictKind.STOP | VerdictKind.FINISH:
                stops = verdict.kind is VerdictKind.STOP
                trial.why, trial.closing = verdict.why, TrialState.STOPPED_EARLY if stops else TrialState.FINISHED
                if present is None or not present.works:
                    trial.state = trial.closing

    def _machine_orders(self, tick: TickPurchases) -> Iterator[SweepOrder]:
        """Yield pauses and releases, in the order of the grants."""
        for deployment in list(self.sweep.living.values()):
            is_noticed = self.holdings.standing(deployment.order_id) is AllocationState.NOTICED
            if deployment.works:
                self._decide_pause(deployment, is_noticed, tick)
            if deployment.works and deployment.pause_why:
                yield PauseTrial(deployment.order_id, deployment.trial, deployment.pause_why)
            elif not deployment.works and not is_noticed:
                yield Release(deployment.order_id, deployment.release_why or f"its trial has {deployment.ended}")
        for allocation_id, position in self.sweep.strays.items():
            if position.standing is AllocationState.HELD:
                yield Release(allocation_id, "no trial was deployed by this order")

    def _decide_pause(self, deployment: Deployment, is_noticed: bool, tick: TickPurchases) -> None:
        """Decide whether a machine that trains a trial is to pause, or to end without that."""
        sweep = self.sweep
        trial, at_s, plan = sweep.trials[deployment.trial], tick.at_s, sweep.plan
        if deployment.paused_at_s is not None:
            if not is_noticed and self._is_given_up(deployment, at_s):
                deployment.release_why = f"it did not pause in {at_s - deployment.paused_at_s} s"
                self._progress.leave(trial, TrialState.WAITING)
            elif sweep.stopping and not deployment.pause_why.startswith("the sweep"):
                deployment.pause_why = self._stop_text()
            return
        why, patience_s = "", plan.pause_patience_s
        if sweep.stopping or sweep.closed:
            why = self._stop_text()
        elif trial.closing is not None:
            why = trial.why
        elif is_noticed:
            # A state that takes longer to upload than the notice lasts would be lost: periodic ones must do.
            why = "" if trial.upload_s > plan.notice_s else "the market takes its machine"
        elif self._is_given_up(deployment, at_s):
            deployment.release_why = f"no report within {plan.silence_s} s of its grant"
            self.holdings.cool(deployment.market, at_s)
            self._progress.fail(trial, deployment.from_step, deployment.release_why)
            return
        elif self._is_spot(deployment) and (late := tick.late_on(trial.number, deployment.market.instance_type)):
            why = late
        elif self._hour_is_over(deployment, at_s) and not sweep.is_on_demand:
            steps_left = trial.until_step - trial.steps
            why = tick.offers.gain_of_move(trial.number, deployment.market, steps_left)
            # A trial pauses after its present step, which a move is not to lose.
            step_s = sweep.step_times.seconds(trial.number, deployment.market.instance_type)
            patience_s += ceil(STEP_MARGIN * step_s + trial.upload_s)
        if why:
            deployment.pause_why, deployment.paused_at_s, deployment.patience_s = why, at_s, patience_s

    def _is_given_up(self, deployment: Deployment, at_s: int) -> bool:
        """Return whether a trial has not paused as ordered, or has never reported, for too long."""
        if not deployment.works:
            return False
        if deployment.paused_at_s is None:
            return not deployment.has_reported and at_s - deployment.granted_at_s >= self.sweep.plan.silence_s
        # What a stop by the budget waits for is counted as spent: one tick, and no more.
        patience_s = 0 if self.sweep.stopping == "budget" else deployment.patience_s
        return at_s > deployment.paused_at_s and at_s - deployment.paused_at_s >= patience_s

    def _stop_text(self) -> str:
        return "the sweep's budget is reached" if self.sweep.stopping == "budget" else "the sweep stops"

    def _hour_is_over(self, deployment: Deployment, at_s: int) -> bool:
        after_s = self.sweep.plan.redeploy_after_s
        if after_s is None or not deployment.works or deployment.pause_why:
            return False
        if deployment.reached_step == deployment.from_step or len(self.sweep.trials[deployment.trial].idle) > 1:
            return False  # a machine that is left before its first step has brought nothing; nor did the one before it
        position = self.holdings.positions[deployment.order_id]
        return (
            self._is_spot(deployment)
            and position.standing is AllocationState.HELD
            and at_s - position.allocation.launched_at_s >= after_s
        )

    def _is_spot(self, deployment: Deployment) -> bool:
        return self.holdings.positions[deployment.order_id].allocation.bid_micros is not None

    # -- deployments ------------------------------------------------------------------------------------------

    def _deployments_of(self, tick: TickPurchases) -> Iterator[Deploy]:
        """Yield the unanswered deployments once more, and new ones as far as machines are free."""
        sweep = self.sweep
        for order in sweep.open_orders.values():
            trial = sweep.trials[order.trial]
            # One whose market has no price was decided on a price that held once. If it was bought, it is found.
            if not trial.has_ended and order.market not in tick.event.left_out:
                yield order
        is_probe = sweep.plan.probe and not sweep.is_proven
        free = (1 if is_probe else sweep.plan.parallel) - sweep.working
        waiting = [trial for trial in sweep.trials.values() if trial.waits] if free > 0 else []
        if is_probe:  # a failure may be that of one setting alone
            waiting.sort(key=lambda trial: sum(trial.failures.values()))
        for trial in waiting:
            if free <= 0:
                break
            self._count_loss(trial)
            self._progress.give_up_idle(trial)
            if sweep.fault:
                break
            choice = None if trial.has_ended else tick.choose(trial.number)
            if choice is not None:
                free -= 1
                yield self._deploy(trial, choice, tick)
            elif not trial.has_ended and tick.refused_note and (not trial.why or trial.why.startswith(_WAITED)):
                trial.why = f"{_WAITED}: {tick.refused_note}"
        if tick.budget_refuses and not (sweep.open_orders or sweep.living):
            self._progress.stop("budget")

    def _look_at_probe(self, at_s: int) -> None:
        """Let the other trials begin where the first step takes long, and the code has not failed until then."""
        sweep = self.sweep
        sweep.is_proven = sweep.is_proven or any(
            deployment.works and deployment.has_reported and at_s - deployment.granted_at_s >= sweep.plan.silence_s
            for deployment in sweep.living.values()
        )

    def _end_trials(self) -> None:
        """End the trials that have not failed: what has failed alike would fail them, too."""
        for trial in self.sweep.trials.values():
            if not trial.has_ended and (trial.present is None or not (trial.present.is_open or trial.present.works)):
                trial.state, trial.why = (
                    TrialState.FAILED,
                    self.sweep.fault if trial.deployments else "it was not begun",
                )

    def _count_loss(self, trial: TrialRecord) -> None:
        """Count a machine that ended by itself, without a report of why, as a failure of its trial."""
        present = trial.present
        if present is not None and present.is_lost:
            present.is_lost = False
            self._progress.fail(trial, present.reached_step, "its machine ended, and it left no report of why")

    def _deploy(self, trial: TrialRecord, choice: MachineChoice, tick: TickPurchases) -> Deploy:
        sweep = self.sweep
        prefix = f"t{trial.number}-"
        # Machines that were found may be newer than this record, which was restored from a backup.
        trial.orders = max(
            [trial.orders, *(number_after(sweep.opened.sweep_id, name, prefix) for name in sweep.strays)]
        )
        order_id = order_id_of(sweep.opened.sweep_id, tick.event.generation, f"{prefix}{trial.orders}")
        notes = [choice.reason, trial.why, self._size_note(trial), tick.refused_note]
        reason = "; ".join(note for note in notes if note)
        order = Deploy(
            order_id, trial.number, choice.market, choice.bid_micros, trial.saved_step, trial.until_step, reason
        )
        trial.orders += 1
        sweep.enter_order(order)
        return order

    def _size_note(self, trial: TrialRecord) -> str:
        notice_s = self.sweep.plan.notice_s
        if trial.upload_s <= notice_s:
            return ""
        largest = int(trial.state_bytes * notice_s / trial.upload_s)
        return (
            f"its state of {trial.state_bytes} bytes took {trial.upload_s:.0f} s to upload, longer than the notice of "
            f"{notice_s} s: it is uploaded periodically instead (at this speed at most {largest} bytes fit)"
        )

    # -- the end ----------------------------------------------------------------------------------------------

    def _finish(self) -> Iterator[Finish]:
        sweep = self.sweep
        if sweep.outcome is None:
            has_all = sweep.sampler_failure or sweep.fault or len(sweep.trials) == sweep.plan.trials
            is_done = bool(has_all) and all(trial.has_ended for trial in sweep.trials.values())
            strays = any(position.standing is not AllocationState.GONE for position in sweep.strays.values())
            if sweep.open_orders or sweep.living or strays or not (is_done or sweep.stopping):
                return
            sweep.outcome = self._outcome_of(is_done)
        yield sweep.outcome

    def _outcome_of(self, is_done: bool) -> Finish:
        sweep = self.sweep
        if sweep.stopping and not is_done:
            return Finish(SweepState.STOPPED, sweep.stopping)
        if sweep.fault:
            return Finish(SweepState.FAILED, sweep.fault)
        if any(trial.value is not None for trial in sweep.trials.values()):
            return Finish(SweepState.FINISHED, sweep.sampler_failure)
        whys = [sweep.sampler_failure, *(trial.why for trial in sweep.trials.values())]
        reasons = dict.fromkeys(why for why in whys if why)
        return Finish(SweepState.FAILED, "no trial has a value" + "".join(f"; {why}" for why in [*reasons][:3]))

    def validate(self) -> None:
        """Raise `SweepError` where an invariant does not hold."""
        sweep = self.sweep
        for order_id, order in sweep.open_orders.items():
            if sweep.trials[order.trial].present is not sweep.deployments[order_id]:
                raise SweepError(f"{order_id} is open, and not the present deployment of trial {order.trial}")
        for trial in sweep.trials.values():
            if trial.state is TrialState.RUNNING and not (trial.present and trial.present.works):
                raise SweepError(f"trial {trial.number} runs on no machine")
        if sweep.outcome is not None and sweep.open_orders:
            raise SweepError("the sweep has ended with open orders")
        if self.holdings.job_id is None and (self.holdings.positions or sweep.trials):
            raise SweepError("trials or allocations without a sweep")

    def _steps_left(self) -> dict[int, int]:
        """Return the steps to train by trial, as if those `mcnt` that have most to do went on to their last step."""
        sweep = self.sweep
        most = sweep.plan.max_trial_steps
        alive = [trial for trial in sweep.trials.values() if not trial.has_ended and trial.closing is None]
        by_rest = sorted(alive, key=lambda trial: (trial.steps, trial.number))
        last = {trial.number for trial in by_rest[: sweep.plan.mcnt]}
        return {
            trial.number: max((most if trial.number in last else trial.until_step) - trial.steps, 0) for trial in alive
        }
