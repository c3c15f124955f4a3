"""A sweep on the simulated market of a test's process: real ticks, and trials that train as the clock is moved."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.infra.state.records import Job
from proteus_spot.infra.storage.blobs import BlobMissing
from proteus_spot.infra.storage.trial_paths import TrialPaths
from proteus_spot.infra.trials.state_store import stored_states
from proteus_spot.infra.trials.trial_documents import TrialOrders, TrialReport, TrialSetting
from proteus_spot.tasks.market.engine_journal import SweepJournal
from proteus_spot.tasks.market.ingest import fetch_prices, history_days
from proteus_spot.tasks.sweeps.running.sweep_opening import named_markets, open_sweep, record_sweep
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures, sweep_view
from tests.support.plain_ticks import plain_tick
from tests.support.task_runtime import MARKET, OTHER, TaskRuntime, plain

#: Market seconds of a step, and of the boot of a machine.
STEP_S, BOOT_S = 60, 60


def sweep_spec(**fields: Any) -> SweepSpec:
    """A grid of four trials of 20 steps on two markets; `fields` replace its own."""
    return SweepSpec.model_validate(
        {
            "sweep": "sweep",
            "sweep_id": "sweep",
            "trial": "tiny:train",
            "code": "tiny.py",
            "space": {"rate": {"choice": [1, 2, 3, 4]}},
            "metric": {"name": "loss"},
            "max_trial_steps": 20,
            "stop": "none",
            "parallel": 4,
            "markets": [str(MARKET), str(OTHER)],
            **fields,
        }
    )


@dataclass
class Machine:
    """The machine of a deployment, as its supervisor would run it."""

    trial: int
    begun_s: float
    report: TrialReport | None = None
    restored: int = 0


@dataclass
class Trained:
    """What all machines did: the steps of each deployment, in sequence."""

    steps: dict[str, list[int]] = field(default_factory=dict)


class SweepWorld(TaskRuntime):
    """A sweep whose machines train as `advance` moves the clock; parameters as `TaskRuntime`'s."""

    def __init__(
        self,
        directory: Path,
        patch: pytest.MonkeyPatch,
        taken_after_s: int | None = None,
        traces: TraceSet | None = None,
    ) -> None:
        super().__init__(directory, patch, taken_after_s, traces=traces)
        self.tick_job = plain_tick(patch)
        self.machines: dict[str, Machine] = {}
        self.trained = Trained()
        #: Called with a report before it is written; returns what is written, None: nothing is.
        self.falsify: Callable[[str, TrialReport], TrialReport | None] = lambda order, report: report

    def begin_sweep(self, spec: SweepSpec) -> SweepJournal:
        """Record and open the sweep, as its flow does."""
        plain(record_sweep)(spec)
        plain(fetch_prices)(tuple(named_markets(spec)), history_days())
        journal = SweepJournal(spec.job_id)
        plain(open_sweep)(spec, journal)
        return journal

    @property
    def engine(self) -> SweepEngine:
        """The engine, by the journal."""
        return SweepJournal("sweep").refresh()

    @property
    def job(self) -> Job:
        """The sweep's row."""
        return self.store.jobs.job("sweep")

    @property
    def figures(self) -> dict[str, Any]:
        """The figures, as `--json` writes them."""
        return sweep_figures(sweep_view(self.store, "sweep"))

    def to_the_end(self, most_ticks: int = 200) -> dict[str, Any]:
        """Tick every two minutes until the sweep has ended and nothing lives; return its figures."""
        for _ in range(most_ticks):
            if self.job.state.terminal and not self.store.purchases.allocations("sweep", alive=True):
                return self.figures
            self.tick_job("sweep")
            self.advance(120)
        raise AssertionError(f"the sweep has not ended: {self.figures}")

    def advance(self, seconds: int) -> None:
        """Let the market's time pass, in which the living machines train, save and report."""
        for _ in range(seconds // STEP_S):
            self.clock.at_s += STEP_S
            for fact in self.sweep_facts():
                if fact.alive:
                    self._train(fact)

    def sweep_facts(self) -> list[InstanceFact]:
        """Return every machine of the sweep."""
        return list(self.market.describe([("proteus:owner", self.runtime.owner), ("proteus:job", "sweep")]))

    def _train(self, fact: InstanceFact) -> None:
        order, now_s, blobs = fact.order_id, self.clock.now_s(), self.runtime.blobs
        trial = int(order.rsplit("-", 2)[1].removeprefix("t"))
        paths = TrialPaths("sweep", trial)
        machine = self.machines.setdefault(order, Machine(trial, fact.launched_at_s + BOOT_S))
        if now_s < machine.begun_s or (machine.report is not None and machine.report.ended):
            return
        setting = TrialSetting.from_json(blobs.read_json(paths.setting))
        orders = TrialOrders.from_json(blobs.read_json(paths.orders(order)))
        if machine.report is None:
            states = stored_states(blobs, paths)
            machine.restored = states[0].step if states else 0
            machine.report = TrialReport(restored_step=machine.restored, at_s=now_s)
        report, steps = machine.report, self.trained.steps.setdefault(order, [])
        step = steps[-1] if steps else machine.restored
        leaves = orders.pause or fact.notice_at_s is not None
        if not leaves and step < orders.until_step:
            step += 1
            steps.append(step)
            report = _with(report, values=(*report.values, (step, loss(setting.params["rate"], step))))
        if leaves or step >= orders.until_step:
            if step:
                blobs.write_set(paths.state(step, order), {"weight": str(step).encode()}, {"step": step})
            ended = "finished" if step >= setting.max_trial_steps else "paused"
            report = _with(report, saved_step=step or None, ended=ended)
        machine.report = _with(report, step_s=float(STEP_S), at_s=now_s)
        written = self.falsify(order, machine.report)
        if written is not None:
            blobs.write_json(paths.report(order), written.to_json())

    def report_of(self, order: str) -> TrialReport | None:
        """Return the report of a deployment as it is in the store."""
        trial = int(order.rsplit("-", 2)[1].removeprefix("t"))
        try:
            return TrialReport.from_json(self.runtime.blobs.read_json(TrialPaths("sweep", trial).report(order)))
        except BlobMissing:
            return None


def loss(rate: float, step: int) -> float:
    """The metric of a trial: 1 / (rate * step)."""
    return 1.0 / (rate * step)


def _with(report: TrialReport, **fields: Any) -> TrialReport:
    return TrialReport(**{name: getattr(report, name) for name in TrialReport.__slots__} | fields)
