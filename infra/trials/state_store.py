"""The uploaded states of a trial: each a set of files, the manifest last; the newest step of any deployment counts."""

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import MANIFEST, BlobError, BlobMissing, Blobs, DamagedSet, blobs_at
from proteus_spot.infra.storage.trial_paths import TrialPaths, state_step
from proteus_spot.infra.trials.saved_states import STATE, remove_folder, unpack_state

logger = logging.getLogger(__name__)

#: Number of states that are left in the store: the newest may turn out to be damaged.
_STATES = 2


@dataclass(frozen=True, slots=True)
class StoredState:
    """A complete state in the store: the prefix of its set, and the step that it was saved after."""

    prefix: str
    step: int


def upload_state(blobs: Blobs, paths: TrialPaths, deployment: str, step: int, folder: Path) -> StoredState:
    """Upload the state of a folder, and remove older ones.

    Raises
    ------
    BlobError
        If the store does not take it.
    OSError
        If the folder does not hold a complete state any more; nothing is there to be taken for one then.
    """
    state = StoredState(paths.state(step, deployment), step)
    blobs.write_set(state.prefix, _files(folder), {"step": step, "deployment": deployment})
    for older in stored_states(blobs, paths)[_STATES:]:
        if older.step < step:
            blobs.remove_set(older.prefix)
    return state


def stored_states(blobs: Blobs, paths: TrialPaths) -> list[StoredState]:
    """Return the complete states of a trial, the newest step first."""
    found = []
    for name in blobs.list(paths.states):
        prefix, _, file = name.removeprefix(f"{paths.states}/").partition("/")
        if file == MANIFEST and (step := state_step(prefix)) is not None:
            found.append(StoredState(f"{paths.states}/{prefix}", step))
    return sorted(found, key=lambda state: (state.step, state.prefix), reverse=True)


def fetch_newest_state(blobs: Blobs, paths: TrialPaths, folder: Path) -> StoredState | None:
    """Write the files of the newest undamaged state to `folder`; return it, or None if there is none.

    Raises
    ------
    BlobError
        If the store cannot be read.
    """
    for state in stored_states(blobs, paths):
        try:
            fetch_state(blobs, state.prefix, folder)
        except (BlobMissing, DamagedSet) as error:  # a newer one has replaced it, or it was changed
            logger.warning("%s; an older state is taken", error)
            continue
        return state
    return None


def load_state(source: str | Path) -> Any:
    """Return what a trial has saved, from a folder or the fsspec URL of its set, as in ``s3://…/jobs/SWEEP/best``.

    Raises
    ------
    TrialError
        If there is no complete state, or it is damaged.
    BlobError
        If the store cannot be read.
    """
    if "://" not in str(source):
        return unpack_state(Path(source))
    parent, _, name = str(source).rstrip("/").rpartition("/")
    with tempfile.TemporaryDirectory(prefix="proteus-state-") as scratch:
        folder = Path(scratch) / "state"
        fetch_state(blobs_at(parent, load_settings().region), name, folder)
        model = unpack_state(folder)
        if isinstance(model, Path):  # a copy that must outlive the scratch folder
            lasting = Path(tempfile.mkdtemp(prefix="proteus-state-")) / model.name
            return model.rename(lasting)
        return model


def fetch_state(blobs: Blobs, prefix: str, folder: Path) -> None:
    """Write the files of a set to a new `folder`; `DamagedSet` if one differs from its manifest."""
    manifest = blobs.manifest(prefix)
    if manifest is None:
        raise BlobMissing(f"{blobs.url_of(prefix)}: is not there (any more)")
    remove_folder(folder)
    try:
        for name in manifest.files:
            target = folder / name
            if not target.resolve().is_relative_to(folder.resolve()):
                raise DamagedSet(f"{blobs.url_of(prefix)}: names a file {name!r} outside of it")
            target.parent.mkdir(parents=True, exist_ok=True)
            blobs.fetch_checked(prefix, name, manifest, target)
    except BlobError:
        remove_folder(folder)
        raise


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    yield STATE, folder / STATE
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / STATE:
            yield path.relative_to(folder).as_posix(), path
