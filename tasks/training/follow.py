"""Progress and result of a training, for the flow that asked for it. The training does not need the follower."""

import logging
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from infra.errors import JobFailed
from tasks.job_ends import wants_machines
from tasks.job_records import ended_result, saved_result
from tasks.job_spec import JobSpec
from tasks.runtime import current_runtime, runtime_task
from tasks.training.controller import keep_training, look, note

_log = logging.getLogger(__name__)
#: Real seconds between two status calls, and between two updates of the artifact in the UI.
_LOOK_S = 0.5
_ARTIFACT_S = 5.0


@runtime_task("follow training")
def follow(spec: JobSpec) -> dict[str, Any]:
    """Follow the training to its end, showing progress; return its result.

    A controller that does not answer is waited for: its machine starts it anew, under the same job, and it resumes from
    its checkpoint. Ticks buy machines of the reliable tier again, carry out stops, and close a job that cannot go on.

    Raises
    ------
    JobFailed
        If the controller reports a failure, or a tick has closed the job as failed.
    """
    runtime = current_runtime()
    bar = _ProgressBar(spec)
    clock = 0
    while not (job := runtime.store.job(spec.job_id)).state.terminal:
        # with the loss of the last clock, which is shown until there is another
        status = look(job.controller_address, clock - 1) if job.controller_address else None
        if status is None or status["job_id"] is None:
            result = saved_result(spec.job_id)
            if result is not None:
                return result
            if wants_machines(spec.job_id):
                keep_training(spec)
        else:
            clock = status["clock"]
            bar.show(status)
            note(spec.job_id, status)
            if status["state"] == "failed":
                raise JobFailed(f"job {spec.job_id}: {status['reason']}")
            if status["state"] in ("finished", "stopped"):
                bar.finish()
                return dict(saved_result(spec.job_id) or status["result"] or {"clocks": 0, "stopped": status["reason"]})
        runtime.clock.wait_until(runtime.clock.now_s() + _LOOK_S * runtime.clock.scale)
    return ended_result(spec.job_id) or {}


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
