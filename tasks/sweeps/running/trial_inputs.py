"""Checks of a sweep before anything is bought or written, and what its machines read: code, data, packages."""

from proteus_spot.infra.applications.code_shipping import Words, ship_code
from proteus_spot.infra.datasets.kinds import DEFAULT_SETS
from proteus_spot.infra.datasets.prepare import check_data, prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.files import read_whole
from proteus_spot.infra.trials.shipping import ship_data, ship_requirements
from proteus_spot.psengine.apps.registry import kind_for
from proteus_spot.studies.times import iso
from proteus_spot.tasks.job_records import is_known
from proteus_spot.tasks.market.job_opening import priced
from proteus_spot.tasks.market.purchases.dry_run import DRY_BID, check_listing, check_spot_markets
from proteus_spot.tasks.market.purchases.requests import trial_request
from proteus_spot.tasks.sweeps.running.deploying import data_name
from proteus_spot.tasks.sweeps.running.sweep_opening import named_markets
from proteus_spot.tasks.sweeps.sweep_checks import check_files, check_import, check_trial
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

#: What may be begun in place of a sweep that began with other code.
ANOTHER = (
    "another sweep without --sweep-id; `earlier` in its file takes over the trials that have a value (docs/sweeps.md)"
)


@runtime_task("check", market=True)
def check_sweep(spec: SweepSpec) -> None:
    """Refuse a sweep that cannot run as it is written; its markets are by name.

    Raises
    ------
    InputError
        One line that names the field and the fix.
    """
    need_extra("sweeps", f"sweep {spec.job_id}")
    runtime, place = current_runtime(), f"sweep {spec.job_id}: "
    now_s = runtime.now_s()
    priced(named_markets(spec), now_s)
    if not is_known(spec.job_id):  # a sweep that was begun goes on with what it began with
        check_trial(spec, place)
        check_files(spec, place)
        check_import(spec, place, is_here=not runtime.settings.is_aws)
        if spec.is_built_in:
            check_data(_set_of(spec), 1, spec.trial)
        if runtime.settings.is_aws and spec.billing == "hourly-refund":
            raise InputError(
                f"{place}billing hourly-refund is how EC2 charged until 2017, for simulated markets; leave it out, or "
                "write per-second-first-hour-free"
            )
        deadline_s = spec.deadline_s(now_s)
        if deadline_s is not None and deadline_s <= now_s:
            raise InputError(
                f"{place}deadline {spec.deadline} has passed by the market's clock ({iso(now_s)}); give a later one"
            )
    check_listing(spec.job_id)
    check_spot_markets(
        named_markets(spec),
        lambda market: trial_request(spec.job_id, 0, "dry-run", market, token="dry-run", bid_micros=DRY_BID),
    )


@runtime_task("ship the trial")
def ship_inputs(spec: SweepSpec) -> None:
    """Write code, packages and data of the sweep to the blob store, or find them there.

    Raises
    ------
    InputError
        If a file cannot be used, or the sweep began with another one.
    """
    blobs, sweep_id = current_runtime().blobs, spec.job_id
    if spec.is_built_in:
        prepare(blobs, sweep_id, _set_of(spec), 1, spec.seed, spec.trial)
        return
    ship_code(blobs, sweep_id, spec.trial, spec.code, Words("sweep", ANOTHER))
    if spec.requirements:
        ship_requirements(blobs, sweep_id, read_whole(spec.requirements))
    if spec.data:
        ship_data(blobs, sweep_id, data_name(spec.data), spec.data)


def _set_of(spec: SweepSpec) -> str:
    """Return the data that an application of the engine learns from."""
    return spec.data or DEFAULT_SETS[kind_for(spec.trial)]
