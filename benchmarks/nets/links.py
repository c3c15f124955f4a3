"""Seconds to one held-out loss over slow links: four nodes, each in a network namespace, beside DDP over gloo.

DDP takes `STEPS` steps; its loss is the one that the net has to reach, in at most twice as many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.characters import Characters, generated_text, parts_of
from proteus_spot.benchmarks.papers.many_nodes.cluster import Places, all_there, places
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import lacking
from proteus_spot.infra.storage.blobs import npz_bytes
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.psengine.config import JobConfig

#: Mbit/s, and how many times as fast is asked.
RATES: Sequence[tuple[int, float | None]] = ((50, 3.0), (500, None))
STEPS, NODES = 200, 4
_TIMEOUT_S = 600.0
_PORT = 29_511


def run(
    scratch: Path, rates: Sequence[tuple[int, float | None]] = RATES, steps: int = STEPS, nodes: int = NODES
) -> Iterator[Figure]:
    """Measure; no figures if namespaces cannot be created."""
    if why := lacking():
        note = f"not measured: {why}"
        yield figure("nets", "seconds to one loss over slow links", "s", [1.0], [1.0], "DDP", note, valid=False)
        return
    for rate, asked in rates:
        folder = scratch / str(rate)
        folder.mkdir(parents=True)
        with places(nodes, rate * 1_000_000 // 8, folder) as cluster:
            peer = _ddp(cluster, folder, steps, nodes)
            seconds, reached, moved = _ours(cluster, peer["loss"], steps, nodes)
        note = (
            f"loss {peer['loss']:.3f}{'' if reached else ' was not reached'}; a node sent {peer['sent'] / 1e6:.1f} MB "
            f"by gloo, and {moved / nodes / 1e6:.1f} MB were read and pushed here"
        )
        what = f"seconds to one held-out loss, {nodes} nodes, links of {rate} Mbit/s"
        most = None if asked is None else 1 / asked
        yield figure("nets", what, "s", [seconds], [peer["seconds"]], f"DDP, {steps} steps", note, reached, most)


def _ddp(cluster: Places, folder: Path, steps: int, nodes: int) -> dict[str, float]:
    plan = cluster.network.plan
    (folder / "text").write_bytes(generated_text())
    processes = []
    for rank in range(nodes):
        words = ["ip", "netns", "exec", plan.namespace(rank), sys.executable, "-m", "proteus_spot.benchmarks.nets.ddp"]
        words += ["--steps", str(steps), "--folder", str(folder), "--text", str(folder / "text")]
        words += ["--join", f"tcp://{plan.address(0)}:{_PORT},{rank},{nodes}"]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0"}
        with (folder / f"ddp-{rank}.log").open("wb") as log:
            processes.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
    for rank, process in enumerate(processes):
        if process.wait(_TIMEOUT_S):
            raise RuntimeError((folder / f"ddp-{rank}.log").read_text()[-2000:])
    found: dict[str, float] = json.loads((folder / "ddp.json").read_text())
    return found


def _ours(cluster: Places, loss: float, steps: int, nodes: int) -> tuple[float, bool, float]:
    """Return the seconds until a loss is reached, whether it is, and the bytes read and pushed until the end."""
    net = Characters(steps=2 * steps)
    parts, held = parts_of(generated_text(), net.workers)
    with cluster.job() as running:
        paths = JobPaths(running.name)
        named = {part_name(number): part for number, part in enumerate(parts)} | {HELD_OUT: held}
        files = {
            name: npz_bytes({key: np.asarray(array) for key, array in part.items()}) for name, part in named.items()
        }
        running.blobs.write_set(paths.data, files, {"kind": "arrays"})
        running.start(1, nodes - 1)
        running.until(all_there(nodes))
        config = JobConfig(
            running.name,
            f"{Characters.__module__}:{Characters.__name__}",
            {"steps": 2 * steps},
            running.blobs.url_of(paths.data),
            n_partitions=net.workers,
            n_shards=nodes,
            clocks=2 * steps // net.local_steps,
            evaluate_every=1,
        )
        running.client.start(config.to_dict())
        result: dict[str, Any] = running.until(lambda status: status["state"] == "finished", _TIMEOUT_S)["result"]
    ends = list(accumulate(result["seconds_by_clock"]))
    clocks = [clock for clock, figures in result["metrics_by_clock"] if figures["loss"] <= loss]
    moved = result["bytes_moved"]
    return ends[min(clocks) - 1 if clocks else -1], bool(clocks), moved["read"] + moved["push"]
