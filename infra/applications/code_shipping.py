"""Ship a user's application to the nodes: one file in the blob store, identified by its digest.

The file is written once, before the first machine is bought, and never changes during the job. A node fetches it before
it joins and reports its digest when it joins; the controller excludes nodes whose digest differs.
"""

import importlib
import io
import logging
import sys
import threading
import zipfile
from dataclasses import dataclass
from pathlib import Path

from proteus_spot.infra.applications.code_files import CodeFile, UnreadableCode, read_code, split_app, wheel_members
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs, DamagedSet
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.config import JobConfig, JobError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Words:
    """How a message calls what ships code, and what its user may begin instead."""

    what: str = "job"
    other: str = "another job id"


def ship_code(blobs: Blobs, job_id: str, app: str, code: str, words: Words | None = None) -> str:
    """Write a job's code for its nodes unless it is written; return its digest, empty if the job ships none.

    A job continues with the code that it began with, also if the file can no longer be read.

    Parameters
    ----------
    app : a built-in name, or ``module:Class``.
    code : path or fsspec URL of the .py file or wheel; empty if the module is installed on every machine.
    words : how its user calls it; None: a job.

    Raises
    ------
    InputError
        For an unusable file (see `read_code`), or a job that began with other code.
    """
    file, began = _check_code_matches(blobs, job_id, app, code, words or Words())
    if file is None or began:
        return began
    about = {"app": app, "file": file.name}
    blobs.write_set(JobPaths(job_id).code, {file.name: file.data}, about)
    return file.sha256


def check_code(blobs: Blobs, job_id: str, app: str, code: str) -> None:
    """Refuse what `ship_code` would refuse; write nothing."""
    _check_code_matches(blobs, job_id, app, code, Words())


def _check_code_matches(blobs: Blobs, job_id: str, app: str, code: str, words: Words) -> tuple[CodeFile | None, str]:
    """Return the file (None if none is needed) and the digest of the code that the job began with (empty if none)."""
    split_app(app)
    began = shipped_code(blobs, job_id)
    if not code:
        if began:
            raise InputError(f"{words.what} {job_id}: began with code {began[:12]}; give that again, or {words.other}")
        return None, ""
    try:
        file = read_code(app, code)
    except UnreadableCode as error:
        if not began:
            raise
        logger.warning("%s; job %s goes on with the code that it began with, %s", error, job_id, began[:12])
        return None, began
    if began not in ("", file.sha256):
        raise InputError(
            f"code {code}: {words.what} {job_id} began with code {began[:12]}, and this is {file.sha256[:12]}; "
            f"give that again, or {words.other}"
        )
    return file, began


def shipped_code(blobs: Blobs, job_id: str) -> str:
    """Return the digest of the code that a job began with; empty if it ships none."""
    manifest = blobs.manifest(JobPaths(job_id).code)
    return "" if manifest is None else next(iter(manifest.files.values())).sha256


def fetch_code(blobs: Blobs, job_id: str, directory: Path) -> str:
    """Put a job's code first on `sys.path` of this process; return its digest, empty if the job ships none.

    The file is stored under `directory`, a wheel unpacked with its metadata, so that its data files are found, too.

    Raises
    ------
    BlobError
        If the store cannot be read; `DamagedSet` if the file differs from what was written.
    """
    prefix = JobPaths(job_id).code
    manifest = blobs.manifest(prefix)
    if manifest is None:
        return ""
    ((name, record),) = manifest.files.items()
    data = blobs.read_checked(prefix, name, manifest)
    place_code(CodeFile(name, data, record.sha256), directory, f"{blobs.url_of(prefix)}/{name}")
    return record.sha256


def place_code(file: CodeFile, directory: Path, where: str) -> None:
    """Write code under `directory` and put it first on `sys.path`; see `write_code`."""
    root = write_code(file, directory, where)
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    logger.info("code %s (%s) is at %s", file.sha256[:12], file.name, root)


def write_code(file: CodeFile, directory: Path, where: str) -> Path:
    """Write code under `directory`, a wheel unpacked; return the folder to import from.

    Parameters
    ----------
    where : names the code in errors.

    Raises
    ------
    DamagedSet
        If it is a wheel that cannot be unpacked.
    """
    root = directory / file.sha256
    root.mkdir(parents=True, exist_ok=True)
    if file.name.endswith(".whl"):
        try:
            with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
                for member, path in wheel_members(archive).items():
                    entry = archive.getinfo(member)
                    entry.filename = path
                    archive.extract(entry, root)
        except zipfile.BadZipFile as error:
            raise DamagedSet(f"{where}: cannot be unpacked: {error}") from None
    else:
        (root / file.name).write_bytes(file.data)
    return root


class JobCode:
    """The code of the job that this process serves: fetched once, stored under `directory`."""

    def __init__(self, blobs: Blobs, job_id: str, directory: Path) -> None:
        self._blobs, self._job_id, self._directory = blobs, job_id, directory
        self._digest = ""
        self._fetching = threading.Lock()

    def digest(self) -> str:
        """Return the digest of the job's code, fetched at the first call; empty if there is none (yet)."""
        with self._fetching:
            if not self._digest:
                self._digest = fetch_code(self._blobs, self._job_id, self._directory)
            return self._digest

    def load(self, config: JobConfig) -> None:
        """Make sure that the code of `config` is loaded; `JobError` if other code is."""
        if config.job_id != self._job_id:
            if config.code_sha256:
                raise JobError(f"this process serves job {self._job_id!r} and has no code of {config.job_id!r}")
            return
        try:
            misfit = config.code_misfit(self.digest())
        except DamagedSet as error:
            raise JobError(str(error)) from error
        if misfit:
            raise JobError(f"the controller {misfit}")
