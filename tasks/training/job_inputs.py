"""What the machines of a job read: its data, its code and its keys, in the blob store."""

from functools import partial

from proteus_spot.infra.applications import code_shipping as code
from proteus_spot.infra.datasets.prepare import DataSummary
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task
from proteus_spot.tasks.training.application_checks import check_sizes
from proteus_spot.tasks.training.data_checks import cut_data


@runtime_task("prepare data")
def prepare_data(spec: JobSpec) -> DataSummary:
    """Write the job's partitions to the blob store, or find them there.

    Raises
    ------
    InputError
        If the data cannot be used, or the job's parameters do not fit them.
    """
    training = spec.training
    fits = partial(check_sizes, f"job {spec.job_id}: training.app_params", training)
    return cut_data(current_runtime().blobs, spec.job_id, training, fits)


@runtime_task("prepare keys")
def prepare_keys(job_id: str) -> None:
    """Write the keys of the job's processes to the blob store, if they use TLS, or find them there."""
    from proteus_spot.infra.tls.certificates import ensure_keys

    runtime = current_runtime()
    ensure_keys(runtime.blobs, job_id, runtime.settings)


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
