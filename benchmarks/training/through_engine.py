"""Runs a job of a benchmark on a controller, a reliable and a transient node of one thread each.

They are processes of this machine, as `proteus train` starts them. The reliable node serves, and both work.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from proteus_spot.infra.applications.trained_models import MODEL
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.nodes.controller_client import ControllerClient
from proteus_spot.infra.storage.blobs import Blobs, npz_arrays, npz_bytes
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.infra.urls import file_url
from proteus_spot.psengine.config import JobConfig
from proteus_spot.tasks.local_nodes.local_nodes import LocalNodes

#: The peer that shows the cost of elasticity.
BARE = "the same kernels in a bare loop, two threads"
#: One thread each.
NODES = (("r1", "reliable"), ("t1", "transient"))
Arrays = Mapping[str, NDArray[Any]]

_JOB = "bench"
_TIMEOUT_S = 300.0
#: Seconds between two status requests; few, since the nodes use both cores, and measure the seconds themselves.
_POLL_S = 1.0


def through_engine(
    path: Path,
    app: str,
    params: Mapping[str, Any],
    parts: Iterable[Arrays],
    heldout: Arrays,
    clocks: int,
    n_shards: int = 1,
    scale_in: bool | None = None,
) -> tuple[dict[str, Any], Arrays]:
    """Train as `trained`; return the job's result and the tables of its model."""
    result, files = trained(path, app, params, parts, heldout, clocks, n_shards, scale_in)
    return result, npz_arrays(files[MODEL], MODEL)


def trained(
    path: Path,
    app: str,
    params: Mapping[str, Any],
    parts: Iterable[Arrays],
    heldout: Arrays,
    clocks: int,
    n_shards: int = 1,
    scale_in: bool | None = None,
    kind: str = "examples",
    nodes: Sequence[tuple[str, str]] = NODES,
    watch: Callable[[LocalNodes], object] = lambda running: None,
    **more: Any,
) -> tuple[dict[str, Any], Mapping[str, bytes]]:
    """Train, bulk synchronous, in the directory `path`; return the job's result and the files of its model.

    Its `seconds` are from the first dispatch to the last common clock, without reading the input and without the
    evaluation of `heldout`, whose figures are in `metrics`. `watch` is called every second; `more`: fields of the job.
    """
    blobs = Blobs(file_url(path / "blobs"))
    prefix = JobPaths(_JOB).data
    n_partitions = len(blobs.write_set(prefix, _files(parts, heldout), {"kind": kind}).files) - 1
    config = JobConfig(
        job_id=_JOB,
        app=app,
        app_params=params,
        data_url=blobs.url_of(prefix),
        n_partitions=n_partitions,
        n_shards=n_shards,
        clocks=clocks,
        scale_in=scale_in,
        **more,
    )
    with LocalNodes(path, _JOB, blobs) as running:
        client = running.meet()
        for name, tier in nodes:
            running.start(name, tier, 1)
        _until(client, running, lambda status: len(status["nodes"]) == len(nodes))
        client.start(config.to_dict())

        def has_ended(status: dict[str, Any]) -> bool:
            watch(running)
            return status["state"] in ("finished", "failed")

        status = _until(client, running, has_ended)
    if status["state"] == "failed":
        raise RuntimeError(status["reason"])
    prefix = JobPaths(_JOB).model
    manifest = blobs.manifest(prefix)
    assert manifest is not None, "the job has finished"
    return status["result"], {name: blobs.read_checked(prefix, name, manifest) for name in manifest.files}


def _files(parts: Iterable[Arrays], heldout: Arrays) -> Iterator[tuple[str, bytes]]:
    for partition, arrays in enumerate(parts):
        yield part_name(partition), npz_bytes(dict(arrays))
    yield HELD_OUT, npz_bytes(dict(heldout))


def _until(client: ControllerClient, nodes: LocalNodes, done: Any) -> dict[str, Any]:
    clock = SystemClock()
    deadline_s = clock.now_s() + _TIMEOUT_S
    while True:
        status = client.status()
        if done(status):
            return status
        for name, log in nodes.ended().items():
            raise RuntimeError(f"node {name} has ended: {log}")
        if clock.now_s() > deadline_s:
            raise TimeoutError(f"the engine timed out: {status['state']}, clock {status['clock']}")
        clock.wait_until(clock.now_s() + _POLL_S)
