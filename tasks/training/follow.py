"""Progress and result of a training, for the flow that asked for it. The training does not need the follower."""

from collections.abc import Callable, Mapping
from typing import Any

from proteus_spot.infra.errors import JobFailed
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_records import ended_result, saved_result
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task
from proteus_spot.tasks.training.running_controller import keep_training, look, note

#: Real seconds between two status calls.
_LOOK_S = 0.5


@runtime_task("follow training")
def follow(spec: JobSpec, show: Callable[[Mapping[str, Any] | None], None], begun_at_s: float = 0.0) -> dict[str, Any]:
    """Follow the training to its end; return its result.

    A controller that does not answer is waited for: its machine restarts it, under the same job, and it resumes from
    its checkpoint. Ticks buy machines of the reliable tier again, carry out stops, and close a job that cannot go on.

    Parameters
    ----------
    show : called after each look at the controller with its status, None without an answer; shows what is new.
    begun_at_s : when the job was begun, or begun again.

    Raises
    ------
    JobFailed
        If the controller reports a failure, or a tick has closed the job as failed.
    """
    runtime = current_runtime()
    clock = 0
    while not (job := runtime.store.job(spec.job_id)).state.terminal:
        # with the loss of the last clock, which is shown until there is another
        status = look(job.controller_address, clock - 1) if job.controller_address else None
        if status is None or status["job_id"] is None:
            result = saved_result(spec.job_id)
            if result is not None:
                return result
            if is_active(spec.job_id):
                keep_training(spec, begun_at_s)
        else:
            clock = status["clock"]
            note(spec.job_id, status)
            if status["state"] == "failed":
                raise JobFailed(f"job {spec.job_id}: {status['reason']}")
            if status["state"] in ("finished", "stopped"):
                return dict(saved_result(spec.job_id) or status["result"] or {"clocks": 0, "stopped": status["reason"]})
        show(status)
        runtime.clock.wait_until(runtime.clock.now_s() + _LOOK_S * runtime.clock.scale)
    if job.failure is not None:
        raise JobFailed(job.failure)
    return ended_result(spec.job_id) or {}
