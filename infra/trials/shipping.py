"""What a trial needs, on its way from the user to the machines: code, requirements, and a data file.

The flow writes them once, before the first machine is bought. A machine fetches them once.
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from proteus_spot.infra.applications.code_files import CodeFile
from proteus_spot.infra.applications.code_shipping import write_code
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, read_chunks
from proteus_spot.infra.storage.blobs import BlobMissing, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.trial_paths import SweepPaths
from proteus_spot.infra.trials.trial_errors import TrialError

REQUIREMENTS = "requirements.txt"
#: File beside prepared data with what their manifest says of them.
ABOUT = "about.json"
_INSTALL_S = 1800.0


@dataclass(frozen=True, slots=True)
class TrialInputs:
    """Where a machine has what a trial needs.

    Attributes
    ----------
    code : folder of the user's code; None for an application of the engine.
    packages : folder of the installed requirements; None without.
    data : path of the data file; for an application of the engine, folder of its prepared data. None without data.
    """

    code: Path | None
    packages: Path | None
    data: Path | None


def ship_requirements(blobs: Blobs, sweep_id: str, text: bytes, other: str = "another sweep_id") -> None:
    """Write the requirements file of a sweep unless it is written; `other` is what its user may begin instead.

    Raises
    ------
    InputError
        If the sweep began with others.
    """
    prefix = SweepPaths(sweep_id).requirements
    if blobs.manifest(prefix) is None:
        blobs.write_set(prefix, {REQUIREMENTS: text})
    elif blobs.read_set(prefix)[REQUIREMENTS] != text:
        raise InputError(f"requirements of sweep {sweep_id}: it began with others; give those, or {other}")


def ship_data(blobs: Blobs, sweep_id: str, name: str, source: Source, other: str = "another sweep_id") -> None:
    """Write the data file of a sweep, a path or URL, unless it is written; it is read in chunks. `other` as above.

    Raises
    ------
    InputError
        If it cannot be read, or the sweep began with another file.
    """
    prefix = SweepPaths(sweep_id).data
    manifest = blobs.manifest(prefix)
    if manifest is None:
        blobs.write_set(prefix, [(name, read_chunks(source))])
        return
    digest = hashlib.sha256()
    for chunk in read_chunks(source):
        digest.update(chunk)
    if name not in manifest.files or manifest.files[name].sha256 != digest.hexdigest():
        raise InputError(f"data of sweep {sweep_id}: it began with another file; give that, or {other}")


def fetch_inputs(blobs: Blobs, sweep_id: str, trial: str, directory: Path) -> TrialInputs:
    """Write what a trial needs to folders of `directory`, once, and install its requirements.

    Raises
    ------
    BlobError
        If the store cannot be read.
    TrialError
        If the requirements cannot be installed.
    """
    paths, is_ours = SweepPaths(sweep_id), ":" not in trial
    directory.mkdir(parents=True, exist_ok=True)
    code = None if is_ours else _fetch_code(blobs, paths, directory / "code")
    packages = _install(blobs, paths, directory)
    data = _fetch_set(blobs, JobPaths(sweep_id).data if is_ours else paths.data, directory / "data")
    if data is not None and not is_ours:
        (data,) = data.iterdir()
    return TrialInputs(code, packages, data)


def _fetch_code(blobs: Blobs, paths: SweepPaths, directory: Path) -> Path | None:
    """Write the code below `directory`, which then exists; None if the module is installed on every machine."""
    manifest = blobs.manifest(paths.code)
    if manifest is None:
        return None
    ((name, record),) = manifest.files.items()
    if not directory.exists():
        data = blobs.read_checked(paths.code, name, manifest)
        unfinished = directory.with_name(f"{directory.name}.new")
        write_code(CodeFile(name, data, record.sha256), unfinished, f"{blobs.url_of(paths.code)}/{name}")
        unfinished.rename(directory)
    return directory / record.sha256


def _fetch_set(blobs: Blobs, prefix: str, directory: Path) -> Path | None:
    """Write the files of a set to `directory`, which then exists; None if there is no such set."""
    if directory.exists():
        return directory
    manifest = blobs.manifest(prefix)
    if manifest is None:
        return None
    unfinished = directory.with_name(f"{directory.name}.new")
    unfinished.mkdir(parents=True, exist_ok=True)
    for name in manifest.files:
        blobs.fetch_checked(prefix, name, manifest, unfinished / Path(name).name)
    if manifest.about:
        (unfinished / ABOUT).write_text(json.dumps(dict(manifest.about)))
    unfinished.rename(directory)
    return directory


def _install(blobs: Blobs, paths: SweepPaths, directory: Path) -> Path | None:
    target = directory / "packages"
    if target.exists():
        return target
    try:
        text = blobs.read_set(paths.requirements)[REQUIREMENTS]
    except BlobMissing:
        return None
    (directory / REQUIREMENTS).write_bytes(text)
    unfinished = directory / "packages.new"
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--target", str(unfinished), "--requirement", str(directory / REQUIREMENTS)]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_INSTALL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrialError(f"requirements: cannot be installed: {error}") from None
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        reason = (errors or ended.stderr.splitlines() or [f"pip ended with {ended.returncode}"])[-1]
        raise TrialError(f"requirements: cannot be installed on the machine: {reason.removeprefix('ERROR: ')}")
    if not unfinished.exists():  # nothing that was not there already
        unfinished.mkdir()
    unfinished.rename(target)
    return target
