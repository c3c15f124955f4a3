"""Checks of a job before anything is bought or written."""

from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.eviction_tables import job_table
from proteus_spot.studies.market_data.on_demand_prices import check_budget
from proteus_spot.studies.times import iso
from proteus_spot.tasks.job_records import is_known
from proteus_spot.tasks.market.job_opening import priced_for
from proteus_spot.tasks.market.purchases.dry_run import check_purchases
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task
from proteus_spot.tasks.training.application_checks import check_asked
from proteus_spot.tasks.training.job_inputs import check_code


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
