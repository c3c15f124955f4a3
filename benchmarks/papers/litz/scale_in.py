"""Part `scale-in`: half of the nodes are let go in the middle of a job (section 4.2.2, Figs. 9 and 10 of the paper).

The time to release is from the request to the end of the last process on the nodes that go. Set up as `scale_out`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.litz.scaled_runs import (
    FULL,
    MEASURED,
    RunSize,
    ScaledRun,
    draw,
    finished,
    link_rate,
    load,
    stand_in,
    static,
)
from proteus_spot.benchmarks.papers.litz.waiting_job import StandIn
from proteus_spot.benchmarks.papers.many_nodes.cluster import Places, RunningCluster, all_there
from proteus_spot.benchmarks.papers.many_nodes.measurement import HOURS_S
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import lacking
from proteus_spot.infra.clock import SystemClock

#: Seconds to release in the paper, of `mlr`, and the least share of the links' rate at which states move.
MLR_S, LEAST_RATE = 2.5, 0.5
#: Up to this ratio a clock is as fast as another one: medians of clocks of about a second vary by so much.
AS_FAST = 1.03
#: Share of the clocks that is done when nodes are asked to go.
_AFTER = 0.3
#: Share of the clocks that the job on the few nodes has; of these, the later half is what clocks are compared with.
_BESIDE = 0.5
_WITHIN_S = 120.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class ReleasedNodes:
    """A job that let nodes go, the seconds that it took, and the clock that was common then."""

    course: ScaledRun
    release_s: float
    released_at: int


def run(scratch: Path, picture: Path | None = None, size: RunSize = FULL) -> Iterator[Figure]:
    """Measure; no figures if namespaces cannot be created."""
    if reason := lacking():
        print(f"litz: scale-in is skipped: {reason}")
        return
    courses: dict[str, dict[str, ScaledRun]] = {}
    for app in MEASURED:
        with stand_in(app, scratch, size) as (job, cluster):
            n, half = job.n_nodes, job.n_nodes // 2
            found = []
            for number in range(size.rounds):
                few = static(cluster, replace(job, clocks=ceil(_BESIDE * job.clocks)), half)
                release = scale_in(cluster, job, n, half)
                click.echo(
                    f"{app}, run {number + 1} of {size.rounds}: {half} of {n} nodes are released after "
                    f"{release.release_s:.2f} s, during clock {release.released_at + 1}",
                    err=True,
                )
                found.append((few, release))
        few, release = found[0]
        courses[app] = {f"{half} nodes": few, f"{n} to {half} nodes": release.course}
        yield from figures(job, found)
    if picture is not None:
        draw(courses, picture)


def figures(job: StandIn, found: Sequence[tuple[ScaledRun, ReleasedNodes]]) -> Iterator[Figure]:
    """Yield the seconds of the release, and of a clock after it unless the jobs ended with it.

    Parameters
    ----------
    found : of each run the shorter job on the few nodes throughout, and the one that released the others.
    """
    app, n, half = job.measured.app, job.n_nodes, job.n_nodes // 2
    busy, is_valid = load(*(one for few, release in found for one in (few, release.course)))
    what = f"{app}, {half} of {n} nodes are released after"
    if job.measured.state_bytes:
        leaving, rate = job.measured.state_bytes * (n - half) / n, link_rate(job)
        beside_s, beside = leaving / (rate * (n - half)), f"at {rate / 1e6:.2f} MB/s each"
        note, most = f"states of {leaving / 1e6:.1f} MB; {busy}", 1 / LEAST_RATE
    else:
        beside_s, beside, note, most = MLR_S, "the paper", busy, 1.0
    took = [release.release_s for _, release in found]
    yield figure("litz", what, "s", took, [beside_s], beside, note, is_valid, most)
    after = [
        (median(seconds), median(few.seconds[len(few.seconds) // 2 :]), len(seconds))
        for few, release in found
        if (seconds := release.course.seconds[release.released_at + 1 :])
    ]
    if after:
        yield figure(
            "litz",
            f"{app}, a clock after {half} of {n} nodes were released",
            "s",
            [ours for ours, _, _ in after],
            [beside for _, beside, _ in after],
            f"{half} nodes throughout",
            f"{min(count for _, _, count in after)} clocks or more; {busy}",
            is_valid,
            AS_FAST,
        )


def scale_in(cluster: Places, job: StandIn, many: int, few: int) -> ReleasedNodes:
    """Run a job on `many` nodes, which all serve, and of which in the middle all but `few` are asked to go."""
    with cluster.job() as running:
        running.start(many, 0)
        going = [f"r{i}" for i in range(few, many)]
        running.until(all_there(many))
        running.client.start(job.config(running.name, running.blobs, many).to_dict())
        running.until(lambda status: status["clock"] >= 1, HOURS_S)
        before = psutil.cpu_times()
        asked = running.until(lambda status: status["clock"] >= round(_AFTER * job.clocks), HOURS_S)
        took_s, released_at = _release(running, going)
        cpu = _busy(before)
        status = finished(cluster, running, job)
        job.check(status["result"]["metrics"])
        course = ScaledRun(status["result"]["seconds_by_clock"], int(asked["clock"]), cpu)
        return ReleasedNodes(course, took_s, released_at)


def _busy(before: Any) -> float:
    """Return the share of the machine's processors that was used since `before`: nodes that have ended are in it."""
    now = psutil.cpu_times()
    idle = now.idle + now.iowait - before.idle - before.iowait
    return float(1 - idle / max(sum(now) - sum(before), 1e-9))


def _release(running: RunningCluster, names: list[str]) -> tuple[float, int]:
    """Ask nodes to go, end each when it is drained; return the seconds until all have ended, and the common clock."""
    clock = SystemClock()
    began_s, left = clock.now_s(), set(names)
    running.client.drain(names, _WITHIN_S)
    while left:
        status = running.client.status()
        free = {node["name"] for node in status["nodes"] if node["state"] == "drained"} & left
        running.signal(sorted(free), signal.SIGTERM)
        left -= free
        if status["state"] != "running" or clock.now_s() > began_s + _WITHIN_S:
            raise RuntimeError(f"nodes {sorted(left)} were not drained: the job is {status['state']}")
        clock.wait_until(clock.now_s() + _LOOK_S)
    pids = [running.pids[name] for name in names]
    while len(running.places.ended(pids)) < len(pids):
        clock.wait_until(clock.now_s() + _LOOK_S)
    return clock.now_s() - began_s, int(status["clock"])
