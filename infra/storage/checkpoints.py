"""Checkpoints of a job: a set of a file per shard and state at a commit group; the newest complete ones are kept.

Of a damaged one (a file that is cut short, or missing) an older one is used. That its files have the right content is
checked when they are read, by the nodes.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.storage.blobs import MANIFEST, BlobMissing, Blobs, DamagedSet, Manifest, npz_arrays, npz_bytes
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.protocol.checkpoint import KEPT, Checkpoint, Checkpoints
from proteus_spot.psengine.tables.sharding import Arrays

#: Fields in which a job must equal the job of a checkpoint that it continues from.
_SAME = ("app", "app_params", "n_partitions", "n_shards", "staleness", "seed")


def save_checkpoint(
    blobs: Blobs,
    config: JobConfig,
    group: int,
    shards: Mapping[int, Arrays],
    summary: Mapping[str, Any],
    states: Mapping[int, Arrays] = MappingProxyType({}),
    carried: Mapping[int, str] = MappingProxyType({}),
) -> Checkpoint:
    """Write the state of a commit group, read it back, remove all but the newest checkpoints; return the new one.

    Later ones are removed, too: the job has gone back behind them, since they are damaged.

    Parameters
    ----------
    states : mapping
        States of partitions, by partition.
    carried : mapping
        {partition: the earlier checkpoint that has its state}.

    Raises
    ------
    BlobError
        If it cannot be written or read back unchanged; the older ones are kept then.
    """
    prefix = _prefix(config.job_id, group)
    partitions = sorted({*states, *carried})

    def files() -> Iterator[tuple[str, bytes]]:
        for shard in sorted(shards):
            yield _shard_name(shard), npz_bytes(shards[shard])
        for partition in partitions:
            state = states[partition] if partition in states else read_state(blobs, carried[partition], partition)
            yield _state_name(partition), npz_bytes(state)

    about = {"group": group, "job": config.to_dict(), "summary": dict(summary), "partitions": partitions}
    blobs.write_set(prefix, files(), about)
    blobs.read_set(prefix)
    earlier = [name for name in _names(blobs, config.job_id) if name < prefix and blobs.exists(f"{name}/{MANIFEST}")]
    kept = {prefix, *earlier[1 - KEPT :]}
    for name in _names(blobs, config.job_id):
        if name not in kept:
            blobs.remove_set(name)
    return Checkpoint(group, prefix, summary, tuple(partitions))


def find_checkpoints(blobs: Blobs, config: JobConfig) -> Checkpoints:
    """Return the complete checkpoints of a job.

    Raises
    ------
    JobError
        If one belongs to a job that differs in more than its stopping criterion.
    """
    sets, damaged = _complete(blobs, config.job_id)
    for _, manifest in sets:
        _check_job(config, manifest)
    kept = (
        Checkpoint(int(of.about["group"]), name, of.about["summary"], tuple(of.about["partitions"]))
        for name, of in sets
    )
    return Checkpoints(tuple(kept), damaged)


def _check_job(config: JobConfig, manifest: Manifest) -> None:
    wanted = config.to_dict()
    for field in _SAME:
        if manifest.about["job"][field] != wanted[field]:
            raise JobError(
                f"{field} is {wanted[field]!r}, and the job was begun with {manifest.about['job'][field]!r}: "
                "use that, or another job id"
            )


def newest_clock(blobs: Blobs, job_id: str) -> int:
    """Return the number of clocks in a job's newest complete checkpoint; 0 if there is none."""
    sets, _ = _complete(blobs, job_id)
    if not sets:
        return 0
    about = sets[0][1].about
    return int(about["summary"].get("clocks", about["group"]))


def read_shard(blobs: Blobs, checkpoint: str, shard: int) -> dict[str, NDArray[np.generic]]:
    """Return the rows of every table of a shard from a checkpoint; `BlobError` if they are damaged."""
    return _read(blobs, checkpoint, _shard_name(shard))


def read_state(blobs: Blobs, checkpoint: str, partition: int) -> dict[str, NDArray[np.generic]]:
    """Return the state of a partition from a checkpoint; `BlobError` if it is damaged."""
    return _read(blobs, checkpoint, _state_name(partition))


def _read(blobs: Blobs, checkpoint: str, name: str) -> dict[str, NDArray[np.generic]]:
    manifest = blobs.manifest(checkpoint)
    if manifest is None:
        raise BlobMissing(f"{blobs.url_of(checkpoint)}: is not there (any more)")
    return npz_arrays(blobs.read_checked(checkpoint, name, manifest), blobs.url_of(f"{checkpoint}/{name}"))


def _prefix(job_id: str, group: int) -> str:
    return f"{JobPaths(job_id).checkpoints}/clock-{group:09d}"


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.npz"


def _state_name(partition: int) -> str:
    return f"partition-{partition:05d}.npz"


def _names(blobs: Blobs, job_id: str) -> list[str]:
    """Return the prefixes of all checkpoints, complete or not, oldest first."""
    return sorted({name.rpartition("/")[0] for name in blobs.list(JobPaths(job_id).checkpoints)})


def _complete(blobs: Blobs, job_id: str) -> tuple[list[tuple[str, Manifest]], str]:
    """Return prefix and manifest of the complete checkpoints, the newest first, and what is wrong with a newer one."""
    found: list[tuple[str, Manifest]] = []
    damaged = ""
    for name in reversed(_names(blobs, job_id)):
        try:
            manifest = blobs.manifest(name)
            if manifest is None:
                continue  # its writing was interrupted
            _check_whole(blobs, name, manifest)
        except DamagedSet as error:
            damaged = damaged or ("" if found else str(error))
        else:
            found.append((name, manifest))
    return found, damaged


def _check_whole(blobs: Blobs, name: str, manifest: Manifest) -> None:
    """Raise `DamagedSet` if a file is missing or has another size, or the manifest lacks what a checkpoint has."""
    for file, record in manifest.files.items():
        size = blobs.size(f"{name}/{file}")
        if size != record.size:
            got = "is missing" if size is None else f"has {size} bytes, not {record.size}"
            raise DamagedSet(f"{blobs.url_of(f'{name}/{file}')}: {got}")
    if not {"group", "job", "summary", "partitions"} <= manifest.about.keys():
        raise DamagedSet(f"{blobs.url_of(f'{name}/{MANIFEST}')}: is not a manifest of a checkpoint")
