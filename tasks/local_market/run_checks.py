"""Checks of a run on this machine before anything is started, bought or written."""

import errno
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import write_whole
from proteus_spot.infra.local_market.environment import LOCAL_AWS
from proteus_spot.infra.settings import Settings, load_settings
from proteus_spot.infra.state.records import JobKind, JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.studies.form_fields import RECORDED
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_records import recorded_spec, with_larger_limits
from proteus_spot.tasks.local_market.run_environment import environment_variables

#: File in the directory of a run that holds where it was begun.
_BEGUN_IN = "begun-in"
#: Real seconds that an endpoint has to take a connection, and to answer.
_CONNECT_S = 2.0
_ANSWER_S = 3.0
#: Codes for a request that is not signed by a key of the endpoint.
_NO_KEY = ("NoCredentialsError", "AuthFailure", "MissingAuthenticationToken")


def check_directory(option: str, path: Path, needed_bytes: int = 0) -> None:
    """Refuse a directory that cannot be made or used, or whose disk has less than `needed_bytes` free."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{option} {path}: {existing} is a file; name a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{option} {path}: {existing} may not be written by this user; name another directory")
    try:
        with tempfile.TemporaryFile(dir=existing):  # /proc says that it can be written
            pass
    except OSError as error:
        raise InputError(
            f"{option} {path}: {existing} takes no files: {error.strerror}; name another directory"
        ) from None
    total_bytes, _, free_bytes = shutil.disk_usage(existing)
    if total_bytes and free_bytes < needed_bytes:  # a file system without sizes reports 0 for all
        raise InputError(
            f"{option} {path}: {os.strerror(errno.ENOSPC)}: {free_bytes / 2**20:.1f} MB are free, and at least "
            f"{needed_bytes / 2**20:.0f} are needed; free some, or name another directory"
        )


def check_finite(option: str, value: float | None) -> None:
    """Refuse a number that is not finite."""
    if value is not None and not math.isfinite(value):
        raise InputError(f"{option} {value}: is not a number of use; give a finite one")


def check_settings(variables: Mapping[str, str], scale: float, flow_latency_s: float) -> None:
    """Refuse periods that cannot be kept at `scale`, and settings that cannot be read."""
    with environment_variables(variables):
        load_settings().check_cadence(scale, flow_latency_s)


def kept_scale(variables: Mapping[str, str], most: float, flow_latency_s: float) -> float:
    """Return the largest whole scale up to `most` whose periods flows of `flow_latency_s` real seconds can keep."""
    with environment_variables(variables):
        return min(most, max(1.0, math.floor(load_settings().fastest_scale(flow_latency_s))))


def check_endpoint(url: str) -> None:
    """Refuse an endpoint that does not answer as EC2 does."""
    with environment_variables(LOCAL_AWS):
        market = Ec2SpotMarket(Settings(ec2_endpoint_url=url), attempts=1, connect_s=_CONNECT_S, read_s=_ANSWER_S)
        try:
            market.describe([("proteus:job", "-")])
        except MarketError as error:
            fix = "name one that answers as EC2, or leave it out"
            if error.code in _NO_KEY:
                fix = (
                    "set AWS_ACCESS_KEY_ID to the access_key_id of its announcement, AWS_SECRET_ACCESS_KEY to any word"
                )
            raise InputError(f"--endpoint {url}: {error}; {fix}") from None


def check_database(url: str) -> bool:
    """Refuse a state database that cannot be used; return whether it exists. A missing one is not created."""
    try:
        file = _sqlite_file(url)
        if file is not None and not file.exists():
            check_directory("--database", file.parent)
            return False
        Store.open(url).close()
    except InputError as error:
        raise InputError(str(error).replace("PROTEUS_DATABASE_URL", "--database")) from None
    return True


def check_place(directory: Path, url: str, job_id: str | None = None) -> None:
    """Refuse a directory of which machines and records have absolute paths that have changed.

    Raises
    ------
    InputError
        If its directory was moved or copied since, and the job (None: one of its jobs) has not ended.
    """
    record = directory / _BEGUN_IN
    begun_in = Path(record.read_text()) if record.exists() else directory
    if not (begun_in.exists() and begun_in.samefile(directory)) and check_database(url):
        with closing(Store.open(url)) as store:
            jobs = [job for job in store.jobs.list_jobs() if job_id in (None, job.job_id)]
            is_open = [not job.state.terminal or store.purchases.allocations(job.job_id, alive=True) for job in jobs]
        if any(is_open):
            raise InputError(f"--dir {directory}: this run was begun in {begun_in}; move it back, and give that")


def note_place(directory: Path) -> None:
    """Record where a run is begun, for `check_place`."""
    write_whole(directory / _BEGUN_IN, str(directory).encode())


def _sqlite_file(url: str) -> Path | None:
    """Return the file that a URL of SQLite names; None for any other text."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None
    named = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
    if not named or str(parsed.database).startswith("file:"):
        return None
    return Path(str(parsed.database)).absolute()


class JobStatus(StrEnum):
    """State of a job in its database, before a run."""

    NEW = "new"
    PAUSED = "paused"
    ENDED = "ended"


def newest_unfinished(url: str, sweep: str) -> str | None:
    """Return the id of the newest sweep of a name in a database, if it has not ended; None also without a database."""
    if not check_database(url):
        return None
    with closing(Store.open(url)) as store:
        jobs = [job for job in store.jobs.list_jobs() if job.kind is JobKind.SWEEP and job.spec["sweep"] == sweep]
    return jobs[-1].job_id if jobs and not jobs[-1].state.terminal else None


def begun_before(
    url: str,
    job_id: str,
    spec: Mapping[str, Any],
    extends: Callable[[Mapping[str, Any], float], bool] = lambda begun, begun_at_s: False,
) -> JobStatus:
    """Return whether the job was begun before; a job that failed, or was not run to its end, resumes.

    So does one that a limit has stopped, with a larger one. For any other ended job nothing is left but to report its
    figures.

    Parameters
    ----------
    extends : whether `spec` is that of a sweep, which it is given with the time of its begin, with more trials or
        larger limits: then the sweep goes on.

    Raises
    ------
    InputError
        If it was begun with another `spec`.
    """
    with closing(Store.open(url)) as store:
        job = store.jobs.find_job(job_id)
        if job is None:
            return JobStatus.NEW
        alive = store.purchases.allocations(job_id, alive=True)
    goes_on = {JobState.FAILED}
    if job.kind is JobKind.SWEEP:
        grows = extends(job.spec, job.created_at_s)
        same = grows or dict(job.spec) == dict(spec)
        goes_on |= {JobState.STOPPED, *([JobState.FINISHED] if grows else [])}
    else:
        given = JobSpec.model_validate(spec, context=RECORDED)
        grows = with_larger_limits(job, given, load_settings().progress_minutes) == given
        same = grows or recorded_spec(job) == given
        goes_on |= {JobState.STOPPED} if grows else set()
    if not same:
        other = "--sweep-id" if job.kind is JobKind.SWEEP else "--job"
        raise InputError(
            f"{job.kind} {job_id}: was begun before with other options; give the same ones, or another {other}"
        )
    is_ended = job.state.terminal and job.state not in goes_on and not alive
    return JobStatus.ENDED if is_ended else JobStatus.PAUSED
