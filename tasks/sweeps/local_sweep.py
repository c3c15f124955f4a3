"""A sweep on this machine alone: the same decisions and the same supervisors, without a market, a database or Prefect.

What happened is in a journal file beside the blobs, so that a sweep that was interrupted goes on: finished trials stay,
the others continue from their newest states.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, BidEvent
from proteus_spot.bidding.market.model import Allocation, EndCause, InstanceType, Market
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import Offer, SweepExtended, SweepOpened, SweepTick
from proteus_spot.bidding.tuning.sweep_journal import to_record
from proteus_spot.bidding.tuning.sweep_orders import Deploy, PauseTrial, Release
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import Deployment
from proteus_spot.infra.applications.code_shipping import Words, ship_code
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.datasets.kinds import DEFAULT_SETS
from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import read_whole
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.trial_paths import SweepPaths, TrialPaths
from proteus_spot.infra.trials.shipping import fetch_inputs, ship_data, ship_requirements
from proteus_spot.infra.trials.state_store import fetch_state
from proteus_spot.infra.trials.supervisor import TrialJob, TrialSupervisor
from proteus_spot.infra.trials.trial_documents import TrialOrders, TrialReport, TrialSetting
from proteus_spot.infra.urls import file_url, local_path
from proteus_spot.psengine.apps.registry import kind_for
from proteus_spot.reports.sweep_view import SweepView
from proteus_spot.tasks.sweeps.best_trial import save_best
from proteus_spot.tasks.sweeps.engine_inputs import report_event, search_plan
from proteus_spot.tasks.sweeps.samplers import check_extension, proposal
from proteus_spot.tasks.sweeps.sweep_checks import check_files, check_trial
from proteus_spot.tasks.sweeps.sweep_folder import keep_description, read_journal, view_of
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures

#: The one market of a sweep without a market.
_HERE = Market("local", "here")
_TYPE = InstanceType("local", 1, 1.0, 1)
_OFFER = Offer(price_micros=1, average_micros=1, bid_micros=1, p_evicted=0.0, on_demand_micros=1)
#: Real seconds between two looks at running trials, and between two of their reports.
_LOOK_S, _REPORT_S = 0.1, 1.0
#: What may be begun in place of a sweep that began with other inputs.
_ANOTHER = "another sweep by --dir; `earlier` in its file takes over the trials that have a value (docs/sweeps.md)"


@dataclass(frozen=True, slots=True)
class LocalProgress:
    """Something that happened to a trial: its state now, the step it stands at, and the metric there."""

    trial: int
    params: Mapping[str, object]
    state: str
    steps: int
    value: float | None
    why: str


class LocalSweep:
    """A sweep in a folder of this machine.

    Parameters
    ----------
    spec : the sweep; its markets, budget and deadline play no part.
    directory : for its journal, the states of its trials, and the best one.
    tell : called with what happens to trials.
    """

    def __init__(
        self,
        spec: SweepSpec,
        directory: Path,
        tell: Callable[[LocalProgress], None] = lambda progress: None,
    ) -> None:
        self._spec = spec
        self._directory = directory
        self._tell = tell
        self._patience_s = 60.0 * load_settings().progress_minutes
        self._clock = SystemClock()
        self._blobs = Blobs(file_url(directory / "blobs"))
        self._journal = directory / "journal.jsonl"
        self._engine = SweepEngine()
        self._running: dict[str, tuple[TrialSupervisor, asyncio.Task[TrialReport]]] = {}
        self._told: dict[int, tuple[str, int]] = {}
        #: The signal that interrupted it; 0 before.
        self.signal_number = 0

    def check(self, place: str = "") -> bool:
        """Refuse a trial or files that cannot be used, before anything is written; return whether the sweep is new.

        Parameters
        ----------
        place : prefix of what the checks find, as in ``sweep.yaml: ``.

        Raises
        ------
        InputError
            One line that names the field and the fix.
        """
        if self._journal.exists():  # a sweep that has begun goes on with what it began with
            return False
        check_trial(self._spec, place)
        check_files(self._spec, place)
        return True

    def open(self) -> None:
        """Check and copy what the trials need, and read what happened before.

        Raises
        ------
        InputError
            One line that names the field and the fix; also for a folder with another sweep.
        """
        self.check()
        self._ship()
        keep_description(self._directory, self._spec)
        events = read_journal(self._directory, self._engine, is_ours=True)
        opened = SweepOpened(self._now_s(), self._spec.job_id, self._plan(), {_TYPE.name: _TYPE}, (_HERE,))
        if not events:
            self._apply(opened)
        else:
            self._go_on(opened)
        fetch_inputs(self._blobs, self._spec.job_id, self._spec.trial, self._directory / "inputs")

    def _go_on(self, opened: SweepOpened) -> None:
        """Go on with what the folder holds, with more trials where the description has more.

        Raises
        ------
        InputError
            If the folder holds another sweep, or settings that this one would number otherwise.
        """
        engine, trials = self._engine, opened.plan.trials
        held = replace(engine.sweep.plan, probe=True, trials=trials)
        if (held, engine.holdings.job_id) != (opened.plan, opened.sweep_id) or trials < engine.sweep.plan.trials:
            raise InputError(
                f"{self._directory}: holds a sweep of another description; name another folder by --dir "
                "(a sweep may get more trials, and no other change)"
            )
        check_extension(self._spec, engine.sweep)
        if trials > engine.sweep.plan.trials:
            self._apply(SweepExtended(self._now_s(), trials))

    def run(self) -> bool:
        """Train until the sweep has ended; return False if a signal interrupted it, with every state saved."""
        return asyncio.run(self._run())

    def view(self) -> SweepView:
        """Return the sweep as it stands."""
        return view_of(self._directory, self._spec, self._engine)

    def result(self) -> dict[str, Any]:
        """Return the figures of the sweep as it stands, in the form of `proteus sweep run --json`."""
        return sweep_figures(self.view(), curves=True)

    def save_best(self) -> Path | None:
        """Save the state of the best trial in the folder ``best``, that of an application of the engine as a model.

        Returns the folder, or None where no trial has a value and a state.
        """
        url = save_best(self._blobs, self._spec, self._engine)
        if url is None or self._spec.is_built_in:
            return None if url is None else Path(str(local_path(url)))
        prefix, folder = SweepPaths(self._spec.job_id).best, self._directory / "best"
        fetch_state(self._blobs, prefix, folder)
        manifest = self._blobs.manifest(prefix)
        assert manifest is not None
        (folder / "setting.json").write_text(json.dumps(manifest.about, indent=1))
        return folder

    # -- the run

    async def _run(self) -> bool:
        interrupted = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupt(number: int) -> None:
            self.signal_number = number
            interrupted.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt, number)
        for deployment in self._engine.sweep.deployments.values():
            if deployment.works:
                self._supervise(deployment)
        changed = True
        try:
            while self._engine.sweep.outcome is None and not interrupted.is_set():
                if changed:
                    while self._tick():  # again: what it has released is free
                        continue
                    self._tell_changes()
                if self._engine.sweep.outcome is None:
                    await asyncio.sleep(_LOOK_S)
                    changed = self._take_reports()
        finally:
            for supervisor, _ in self._running.values():
                supervisor.stop("interrupted")
            await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        return self._engine.sweep.outcome is not None

    def _tick(self) -> bool:
        """Decide, and carry the orders out; return whether a machine was released."""
        released = False
        at_s = self._now_s()
        if (wanted := self._engine.wants_trials) > 0:
            self._apply(proposal(self._spec, self._engine.sweep, wanted, at_s))
        for order in self._apply(SweepTick(at_s, {_HERE: _OFFER})):
            match order:
                case Deploy():
                    self._deploy(order, at_s)
                case PauseTrial():
                    self._running[order.deployment][0].stop(order.why)
                case Release():
                    self._apply(AllocationGone(at_s, order.allocation_id, EndCause.USER))
                    released = True
                case _:  # Finish: the outcome says it
                    continue
        return released

    def _deploy(self, order: Deploy, at_s: int) -> None:
        paths = self._paths(order.trial)
        self._blobs.write_json(paths.setting, self._setting(order.trial).to_json())
        self._blobs.write_json(paths.orders(order.order_id), TrialOrders(order.until_step).to_json())
        allocation = Allocation(order.order_id, order.market, 1, at_s, bid_micros=order.bid_micros)
        self._apply(AllocationGranted(at_s, order.order_id, allocation))
        self._supervise(self._engine.sweep.deployments[order.order_id])

    def _supervise(self, deployment: Deployment) -> None:
        threads = max(1, (os.cpu_count() or 1) // self._engine.sweep.plan.parallel)
        name = deployment.order_id
        job = TrialJob(
            self._spec.job_id,
            deployment.trial,
            name,
            threads=threads,
            poll_s=3600.0,  # its orders never change: it is asked to stop directly
            patience_s=self._patience_s,
            report_s=_REPORT_S,
            # A traceback helps once; the line of each failure is told anyway.
            shows_traceback=not any(trial.failures for trial in self._engine.sweep.trials.values()),
        )
        supervisor = TrialSupervisor(
            job,
            self._blobs,
            self._clock,
            directory=self._directory / "work" / name,
            inputs=self._directory / "inputs",
        )
        self._running[name] = supervisor, asyncio.create_task(supervisor.run())

    def _take_reports(self) -> bool:
        """Take what the running trials have reported; return whether there was something new."""
        changed = False
        for name, (supervisor, task) in list(self._running.items()):
            report = task.result() if task.done() else supervisor.report
            if task.done():
                del self._running[name]
            if report is None:
                continue
            event = report_event(self._engine.sweep.deployments[name], report, self._now_s())
            if event is not None:
                self._apply(event)
                changed = True
        return changed

    def _tell_changes(self) -> None:
        for number, trial in sorted(self._engine.sweep.trials.items()):
            now = (str(trial.state), trial.steps)
            if trial.deployments and self._told.get(number) != now:
                self._told[number] = now
                self._tell(LocalProgress(number, trial.params, *now, trial.value, trial.why))

    # -- what it consists of

    def _paths(self, trial: int) -> TrialPaths:
        return SweepPaths(self._spec.job_id).trial(trial)

    def _now_s(self) -> int:
        return int(self._clock.now_s())

    def _plan(self) -> SweepPlan:
        # With "hourly-refund" no machine is left after its first hour.
        parallel = min(self._spec.parallel, os.cpu_count() or 1)
        return replace(search_plan(self._spec), parallel=parallel, billing="hourly-refund")

    def _setting(self, trial: int) -> TrialSetting:
        spec = self._spec
        return TrialSetting(
            self._engine.sweep.trials[trial].params,
            spec.seed + trial,
            spec.max_trial_steps,
            spec.trial,
            spec.metric.name,
            spec.metric.direction,
            data=PurePosixPath(spec.data).name if spec.data else None,
            checkpoint_minutes=spec.checkpoint_minutes,
        )

    def _ship(self) -> None:
        spec, sweep_id = self._spec, self._spec.job_id
        if spec.is_built_in:
            source = spec.data or DEFAULT_SETS[kind_for(spec.trial)]
            prepare(self._blobs, sweep_id, source, 1, spec.seed, spec.trial)
            return
        requirements = read_whole(spec.requirements) if spec.requirements else None
        ship_code(self._blobs, sweep_id, spec.trial, spec.code, Words("sweep", _ANOTHER))
        if requirements is not None:
            ship_requirements(self._blobs, sweep_id, requirements, _ANOTHER)
        if spec.data:
            ship_data(self._blobs, sweep_id, PurePosixPath(spec.data).name, spec.data, _ANOTHER)

    def _apply(self, event: BidEvent) -> Sequence[Any]:
        """Write an event down, then decide."""
        with self._journal.open("a") as journal:
            journal.write(json.dumps(to_record(event)) + "\n")
        return self._engine.handle(event)
