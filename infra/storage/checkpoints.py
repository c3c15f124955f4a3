"""Checkpoints of a job: one set per clock, one file per shard and per state; only the newest complete one is kept."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infra.storage.blobs import BlobMissing, Blobs, Manifest, npz_arrays, npz_bytes
from infra.storage.job_paths import JobPaths
from psengine.apps.executors import own_tables
from psengine.apps.registry import resolve
from psengine.config import JobConfig, JobError
from psengine.protocol.checkpoint import Checkpoint
from psengine.tables.sharding import Arrays

#: Fields in which a job must equal the job of a checkpoint that it continues from.
_SAME = ("app", "app_params", "n_partitions", "n_shards", "staleness", "seed")


def save_checkpoint(
    blobs: Blobs,
    config: JobConfig,
    clock: int,
    shards: Mapping[int, Arrays],
    summary: Mapping[str, Any],
    states: Mapping[int, Arrays] = MappingProxyType({}),
    carried: Mapping[int, str] = MappingProxyType({}),
) -> Checkpoint:
    """Write the state of `clock`, read it back, remove the older checkpoints, and return the new one.

    Parameters
    ----------
    states : mapping
        States of executors, by executor.
    carried : mapping
        {executor: the earlier checkpoint that has its state}.

    Raises
    ------
    BlobError
        If it cannot be written or read back unchanged; the older ones are kept then.
    """
    prefix = _prefix(config.job_id, clock)
    executors = sorted({*states, *carried})

    def files() -> Iterator[tuple[str, bytes]]:
        for shard in sorted(shards):
            yield _shard_name(shard), npz_bytes(shards[shard])
        for executor in executors:
            state = states[executor] if executor in states else read_state(blobs, carried[executor], executor)
            yield _state_name(executor), npz_bytes(state)

    about = {"clock": clock, "job": config.to_dict(), "summary": dict(summary), "executors": executors}
    blobs.write_set(prefix, files(), about)
    blobs.read_set(prefix)
    for name in _names(blobs, config.job_id):
        if name != prefix:
            blobs.remove_set(name)
    return Checkpoint(clock, prefix, summary, tuple(executors))


def find_checkpoint(blobs: Blobs, config: JobConfig) -> Checkpoint | None:
    """Return the newest complete checkpoint of a job; None if there is none.

    Raises
    ------
    JobError
        If it belongs to a job that differs in more than its stopping criterion, or lacks the states of executors.
    """
    name, manifest = _newest(blobs, config.job_id)
    if manifest is None:
        return None
    wanted = config.to_dict()
    for field in _SAME:
        if manifest.about["job"][field] != wanted[field]:
            raise JobError(
                f"{field} is {wanted[field]!r}, and the job was begun with {manifest.about['job'][field]!r}: "
                "use that, or another job id"
            )
    if "executors" not in manifest.about and (own := own_tables(resolve(config.app, config.app_params))):
        raise JobError(
            f"the checkpoint of clock {manifest.about['clock']} was written by Proteus 0.1.0, which kept the rows of "
            f"table {own[0].name!r} elsewhere: train under another job id, or finish this job with Proteus 0.1.0"
        )
    executors = tuple(manifest.about.get("executors", ()))
    return Checkpoint(int(manifest.about["clock"]), name, manifest.about["summary"], executors)


def newest_clock(blobs: Blobs, job_id: str) -> int:
    """Return the clock of a job's newest complete checkpoint; 0 if there is none."""
    _, manifest = _newest(blobs, job_id)
    return 0 if manifest is None else int(manifest.about["clock"])


def read_shard(blobs: Blobs, checkpoint: str, shard: int) -> dict[str, NDArray[np.generic]]:
    """Return the rows of every table of a shard from a checkpoint; `BlobError` if they are damaged."""
    return _read(blobs, checkpoint, _shard_name(shard))


def read_state(blobs: Blobs, checkpoint: str, executor: int) -> dict[str, NDArray[np.generic]]:
    """Return the state of an executor from a checkpoint; `BlobError` if it is damaged."""
    return _read(blobs, checkpoint, _state_name(executor))


def _read(blobs: Blobs, checkpoint: str, name: str) -> dict[str, NDArray[np.generic]]:
    manifest = blobs.manifest(checkpoint)
    if manifest is None:
        raise BlobMissing(f"{blobs.url_of(checkpoint)}: is not there (any more)")
    return npz_arrays(blobs.read_checked(checkpoint, name, manifest), blobs.url_of(f"{checkpoint}/{name}"))


def _prefix(job_id: str, clock: int) -> str:
    return f"{JobPaths(job_id).checkpoints}/clock-{clock:09d}"


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.npz"


def _state_name(executor: int) -> str:
    return f"executor-{executor:05d}.npz"


def _names(blobs: Blobs, job_id: str) -> list[str]:
    """Return the prefixes of all checkpoints, complete or not, oldest first."""
    return sorted({name.rpartition("/")[0] for name in blobs.list(JobPaths(job_id).checkpoints)})


def _newest(blobs: Blobs, job_id: str) -> tuple[str, Manifest | None]:
    """Return prefix and manifest of the newest complete checkpoint."""
    for name in reversed(_names(blobs, job_id)):
        manifest = blobs.manifest(name)
        if manifest is None:
            continue  # its writing was interrupted
        if any(blobs.size(f"{name}/{file}") != record.size for file, record in manifest.files.items()):
            continue
        return name, manifest
    return "", None
