"""Checks of a job before anything is bought; its data, code and keys, put into the blob store for its machines."""

from functools import partial

from proteus_spot.infra.applications import code_shipping as code
from proteus_spot.infra.datasets.prepare import DataSummary
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.eviction_tables import job_table
from proteus_spot.studies.market_data.on_demand_prices import check_budget
from proteus_spot.studies.times import iso
from proteus_spot.tasks.job_records import is_known
from proteus_spot.tasks.market.job_opening import priced_for
from proteus_spot.tasks.market.purchases.dry_run import check_purchases
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task
from proteus_spot.tasks.training.application_checks import check_asked, check_sizes
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


@runtime_task("check", market=True)
def check(spec: JobSpec) -> None:
    """Refuse a job that cannot run as it is written.

    Raises
    ------
    InputError
        One line that names the field and the fix.
    """
    runtime = current_runtime()
    if not is_known(spec.job_id):  # a job that was begun resumes with the code that it began with
        check_asked(spec.training, f"job {spec.job_id}: training.", "app_params")
        check_code(spec)
        job_table(spec)
    now_s = runtime.now_s()
    priced_for(spec, now_s)
    if not is_known(spec.job_id):
        _check_billing(spec)
        check_budget(spec, runtime.catalog, now_s, f"job {spec.job_id}: budget_usd")
        deadline_s = spec.deadline_s(now_s)
        if deadline_s is not None and deadline_s <= now_s:
            raise InputError(
                f"job {spec.job_id}: deadline {spec.deadline} has passed by the market's clock ({iso(now_s)}); give a "
                "later one"
            )
    check_purchases(spec)


def _check_billing(spec: JobSpec) -> None:
    """Refuse the bill of the bid era on EC2 itself: machines would be kept for refunds that there are not."""
    if current_runtime().settings.is_aws and spec.transient.billing == "hourly-refund":
        raise InputError(
            f"job {spec.job_id}: transient.billing hourly-refund is how EC2 charged until 2017, for simulated markets; "
            "leave it out, or write per-second-first-hour-free"
        )
