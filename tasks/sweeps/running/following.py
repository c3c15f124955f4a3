"""A sweep followed to its end by its flow: each deployment of a trial is a task run, while ticks decide and act."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from prefect import Flow, Task, allow_failure
from prefect.client.schemas.objects import FlowRun, State
from prefect.futures import PrefectFuture
from prefect.states import Completed, Failed
from pydantic import ValidationError

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.trials import Deployment
from proteus_spot.reports.sweep_view import SweepView
from proteus_spot.studies.form_fields import RECORDED
from proteus_spot.tasks.job_records import is_known
from proteus_spot.tasks.market.engine_journal import SweepJournal
from proteus_spot.tasks.run_labels import due_day, label_run
from proteus_spot.tasks.supervision.cancelled_runs import request_stop_of_run
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import sweep_view
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

#: Real seconds between two looks at the journal, and for the task runs to end after the sweep.
_LOOK_S, _END_S = 0.5, 10.0


class DeploymentEnd:
    """The end of a deployment, which its task run waits for; a plain object, so that Prefect looks for no futures."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.name, self.message, self.has_failed = "", "", False

    def set(self, name: str, message: str, *, has_failed: bool = False) -> None:
        """Say how it ended; the first end counts."""
        if not self._ended.is_set():
            self.name, self.message, self.has_failed = name, message, has_failed
            self._ended.set()

    def wait(self) -> None:
        """Wait for it."""
        self._ended.wait()


@runtime_task("deployment")
def deployment_run(order_id: str, end: DeploymentEnd) -> State[Any]:
    """Last as long as the machine of a deployment, and end as it did."""
    end.wait()
    return (Failed if end.has_failed else Completed)(name=end.name, message=f"{order_id}: {end.message}")


@dataclass(slots=True)
class _Shown:
    end: DeploymentEnd
    future: PrefectFuture[Any]


@dataclass(slots=True)
class TaskRuns:
    """The task runs of a sweep's deployments, in a run of its flow.

    Machines that were gone before `since_s`, when this run began to follow, are none of its task runs.
    """

    sweep_id: str
    since_s: int
    _shown: dict[str, _Shown] = field(default_factory=dict)
    #: Trial -> its newest task run, which the next one follows in the UI's graph.
    _newest: dict[int, PrefectFuture[Any]] = field(default_factory=dict)

    def update(self, engine: SweepEngine) -> None:
        """Begin a task run for each machine that a trial has got, and end those whose machine has gone."""
        for name, deployment in engine.sweep.deployments.items():
            position = engine.holdings.positions.get(name)
            if position is None:
                continue
            is_gone = position.standing is AllocationState.GONE
            if name not in self._shown and (not is_gone or deployment.granted_at_s >= self.since_s):
                self._begin(name, deployment)
            if name in self._shown and is_gone:
                self._shown[name].end.set(*_outcome(deployment), has_failed=deployment.ended == "failed")

    def close(self) -> None:
        """End the task runs whose machines have not gone yet: ticks see to them."""
        for shown in self._shown.values():
            shown.end.set("Released", "the sweep has ended")
        for shown in self._shown.values():
            shown.future.wait(_END_S)

    def _begin(self, name: str, deployment: Deployment) -> None:
        end, before = DeploymentEnd(), self._newest.get(deployment.trial)
        named = cast("Task[Any, Any]", deployment_run.task).with_options(
            task_run_name=f"{trial_name(deployment.trial)} on {deployment.market}", tags=[f"sweep:{self.sweep_id}"]
        )
        after = [] if before is None else [allow_failure(before)]
        future = named.submit(name, end, wait_for=after)
        self._shown[name] = _Shown(end, future)
        self._newest[deployment.trial] = future


def follow_sweep(sweep_id: str, show: Callable[[SweepEngine], None] = lambda engine: None) -> None:
    """Follow the sweep until it has ended; ticks decide and act, whether it is followed or not.

    Parameters
    ----------
    show : called with the engine at each look at the journal.
    """
    runtime, journal, runs = (
        current_runtime(),
        SweepJournal(sweep_id),
        TaskRuns(sweep_id, current_runtime().now_s()),
    )
    try:
        while True:
            has_ended = runtime.store.jobs.job(sweep_id).state.terminal
            engine = journal.refresh()
            runs.update(engine)
            show(engine)
            if has_ended:
                return
            runtime.clock.wait_until(runtime.clock.now_s() + _LOOK_S * runtime.clock.scale)
    finally:
        runs.close()


def recorded_view(sweep_id: str) -> SweepView | None:
    """Return a sweep of this process's database as it stands; None before it was recorded."""
    return sweep_view(current_runtime().store, sweep_id) if is_known(sweep_id) else None


def name_sweep_run(sweep_id: str, verdict: str = "") -> None:
    """Name and tag this run of the flow after its sweep, and its verdict."""
    label_run(f"{sweep_id}: {verdict}" if verdict else sweep_id, [sweep_id], [f"sweep:{sweep_id}"])


def stop_cancelled_sweep(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Write the request to stop: the hook of a run of `sweep` that is cancelled."""
    spec = (flow_run.parameters or {}).get("spec")
    try:
        described = spec if isinstance(spec, SweepSpec) else SweepSpec.model_validate(spec, context=RECORDED)
    except ValidationError:
        return  # it was refused before it had recorded anything
    request_stop_of_run(described.on(due_day(flow_run)).for_run(str(flow_run.id)).job_id, flow_run)


def trial_name(number: int) -> str:
    """Return a trial as texts name it: `trial-07`."""
    return f"trial-{number:02d}"


def _outcome(deployment: Deployment) -> tuple[str, str]:
    steps = f"step {deployment.reached_step}"
    if deployment.is_evicted:
        return "Evicted", f"the market took the machine at {steps}"
    if deployment.ended == "failed":
        return "TrialFailed", f"the trial failed at {steps}"
    if deployment.ended:
        return deployment.ended.capitalize(), f"the trial {deployment.ended} at {steps}"
    return "Lost", f"the machine ended at {steps}"
