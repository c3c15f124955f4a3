"""Shipping of the user's application to the nodes."""

from proteus_spot.infra.applications import code_shipping as code
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task


@runtime_task("prepare code")
def prepare_code(spec: JobSpec) -> str:
    """Write the job's code to the blob store, or find it there; return its digest, empty if none is shipped."""
    return code.ship_code(current_runtime().blobs, spec.job_id, spec.training.app, spec.training.code)


def check_code(spec: JobSpec) -> None:
    """Refuse an unknown application, and code that cannot be shipped; write nothing.

    Raises
    ------
    InputError
        One line that names the application or the file, and the fix.
    """
    code.check_code(current_runtime().blobs, spec.job_id, spec.training.app, spec.training.code)


def job_code(job_id: str) -> str:
    """Return the digest of the code that the job began with; empty if it ships none."""
    return code.shipped_code(current_runtime().blobs, job_id)
