"""Progress and result of a training, for the flow that asked for it. The training does not need the follower."""

import logging
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from bidding.market.model import Tier
from infra.errors import JobFailed
from tasks.job_records import saved_result
from tasks.job_spec import JobSpec
from tasks.market.engine_journal import JobEngine
from tasks.market.instances import purchase, secure_reliable_tier
from tasks.runtime import current_runtime, runtime_task
from tasks.training.controller import keep_training, look, note

_log = logging.getLogger(__name__)
#: Real seconds between two status calls, and between two updates of the artifact in the UI.
_LOOK_S = 0.5
_ARTIFACT_S = 5.0


@runtime_task("follow training")
def follow(spec: JobSpec, job_engine: JobEngine) -> dict[str, Any]:
    """Follow the training to its end, showing progress; return its result.

    A controller that does not answer is waited for: its machine starts it anew, under the same job, and it resumes from
    its checkpoint. Machines of the reliable tier that were lost are bought again.

    Raises
    ------
    JobFailed
        If the controller reports a failure, or the reliable tier cannot be bought.
    """
    runtime = current_runtime()
    bar = _ProgressBar(spec)
    clock = 0
    while True:
        address = runtime.store.job(spec.job_id).controller_address
        status = look(address, clock) if address else None
        if status is None:
            result = saved_result(spec.job_id)
            if result is not None:
                return result
            if _is_a_reliable_purchase_lost(spec.job_id):
                secure_reliable_tier(spec, job_engine)
            keep_training(spec)
        else:
            if status["job_id"] is None:
                keep_training(spec)  # the controller has started anew
                continue
            clock = status["clock"]
            bar.show(status)
            note(spec.job_id, status)
            if status["state"] == "failed":
                raise JobFailed(f"job {spec.job_id}: {status['reason']}")
            if status["state"] in ("finished", "stopped"):
                bar.finish()
                return dict(saved_result(spec.job_id) or status["result"] or {"clocks": 0, "stopped": status["reason"]})
        runtime.clock.wait_until(runtime.clock.now_s() + _LOOK_S * runtime.clock.scale)


def _is_a_reliable_purchase_lost(job_id: str) -> bool:
    """Return whether all machines of one purchase of the reliable tier have ended: the controller's, maybe.

    Machines of another purchase may still be alive, and wait for a controller.
    """
    alive: dict[str, bool] = {}
    for record in current_runtime().store.allocations(job_id):
        if record.allocation.tier is Tier.RELIABLE:
            first_order = purchase(record.order_id)
            alive[first_order] = alive.get(first_order, False) or record.alive
    return not all(alive.values())


class _ProgressBar:
    """The job's progress artifact, in the Prefect UI."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._clock = current_runtime().clock
        self._scale = self._clock.scale
        self._shown_s = float("-inf")
        self._artifact: UUID | None = None

    def show(self, status: dict[str, Any]) -> None:
        """Show `status`, not too often."""
        now_s = self._clock.now_s() / self._scale
        if now_s - self._shown_s < _ARTIFACT_S:
            return
        self._shown_s = now_s
        self._set(100 * self._share(status), f"clock {status['clock']}, {status['state']}")

    def finish(self) -> None:
        """Show that the job is done."""
        self._set(100.0, "done")

    def _share(self, status: dict[str, Any]) -> float:
        """Return the part of the job that is done, by clocks or by time, whichever is further."""
        training = self._spec.training
        by_clock = status["clock"] / training.clocks if training.clocks else 0.0
        elapsed_s = (status["elapsed_s"] or 0.0) * self._scale
        by_time = elapsed_s / (training.hours * 3600) if training.hours else 0.0
        return min(max(by_clock, by_time), 1.0)

    def _set(self, percent: float, text: str) -> None:
        try:
            self._write(percent, text)
        except httpx.HTTPError as error:  # the server does not answer; a later update shows the progress then
            _log.warning("progress was not shown: %s", error)

    def _write(self, percent: float, text: str) -> None:
        if self._artifact is None:
            made = create_progress_artifact(percent, key=f"progress-{self._spec.job_id}", description=text)
            assert isinstance(made, UUID)
            self._artifact = made
        else:
            update_progress_artifact(self._artifact, percent, description=text)
