"""Benchmark `elasticity` (Fig. 16): many transient nodes join, leave with notice, and are lost without, together.

Set up as `tiering`. Nodes that are to join are processes before the first measured clock, so that their start does not
load the machine's processors, and become nodes on a signal.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.many_nodes.cluster import (
    Places,
    RunningCluster,
    Workload,
    all_there,
    places,
    served_by,
)
from proteus_spot.benchmarks.papers.many_nodes.fork_server import JOIN
from proteus_spot.benchmarks.papers.many_nodes.layouts import KERNEL, STALENESS, TABLE_BYTES, table_seconds
from proteus_spot.benchmarks.papers.many_nodes.measurement import HOURS_S, MOST_CPU, Meter, finished
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import lacking
from proteus_spot.benchmarks.papers.many_nodes.sleeping_app import parse_kernels
from proteus_spot.benchmarks.papers.many_nodes.stalls import AFFECTED, NEIGHBOURS, slowdown, stall, usual, waits
from proteus_spot.infra.clock import SystemClock

NODES = (16,)
_RELIABLE = 4
#: Limits: slowdown of a clock by joins, by leaves, seconds until work resumes after a loss, and repeated clocks.
_JOIN, _LEAVE, _RESUMES_S, _AGAIN = 0.05, 0.13, 2.0, 1 + STALENESS
#: Number of jobs that lose all their transient nodes, and the clock of the loss: the time of detection varies.
_KILLS, _KILLED_IN = 3, 8
#: The clock from which on a job is in its usual state: the first two begin with one read, so that none waits for the
#: second.
_USUAL_FROM = 3
#: Micro-tasks per node if all are present: a survivor's may run for that part of a clock after the others are lost.
_PARTS = 4
_MS = 1e3


@dataclass(frozen=True)
class Course:
    """Clocks in which nodes join and get notice, the last clock, and the seconds of the notice."""

    joins: int
    leaves: int
    clocks: int
    notice_s: float


@dataclass(frozen=True)
class Loss:
    """Seconds until survivors have micro-tasks again, repeated common clocks, and seconds of a survivor's delay.

    `usual_s`: seconds of an earlier clock. `cpu`, `ours`: share of the machine's processors used by all processes and
    by the nodes.
    """

    resumed_s: float
    again: int
    held_up_s: float
    usual_s: float
    cpu: float
    ours: float


#: The course of the paper, and a shorter one.
FIG_16, SHORT = Course(11, 35, 45, 120.0), Course(6, 16, 34, 40.0)


def run(scratch: Path, nodes: tuple[int, ...] = NODES, picture: Path | None = None) -> list[Figure]:
    """Measure; no figures if namespaces cannot be created."""
    if reason := lacking():
        print(f"elasticity: skipped: {reason}")
        return []
    figures: list[Figure] = []
    for n in nodes:
        with places(n, round(TABLE_BYTES / table_seconds(n)), scratch / str(n)) as cluster:
            course = FIG_16 if n >= 64 else SHORT
            seconds, change_figures = join_and_leave(cluster, n, course)
            figures += change_figures
            figures += lose(cluster, n)
        if picture is not None:
            _draw(seconds, course, n, picture if len(nodes) == 1 else picture.with_stem(f"{picture.stem}-{n}"))
    return figures


def kernels_s(n: int) -> float:
    """Return the seconds of kernels per clock on each of `n` nodes.

    Tables take longer with more nodes (`table_seconds`), kernels less so: otherwise four of sixty-four nodes would take
    three minutes per clock.
    """
    return KERNEL * table_seconds(16) * math.sqrt(n / 16)


def load_for(n: int, table_bytes: int = TABLE_BYTES) -> Workload:
    """Return the workload, with a number of shards that four nodes and the ActivePSs can both share evenly."""
    active = (n - _RELIABLE + 1) // 2
    shards = next(shards for shards in range(active, 8 * active + 1) if shards % active == shards % _RELIABLE == 0)
    return Workload(table_bytes, kernels_s(n) * n, _PARTS * n, shards, STALENESS, tells=True, n_servers=active)


def join_and_leave(
    cluster: Places, n: int, course: Course, load: Workload | None = None
) -> tuple[list[float], list[Figure]]:
    """Return the seconds of each clock, and the figures of the two changes."""
    load = load or load_for(n)
    with cluster.job() as running:
        transient = running.start(_RELIABLE, n - _RELIABLE, join=False)
        running.until(all_there(_RELIABLE))
        config = load.config(running.name, running.blobs, course.clocks, _RELIABLE, None)
        running.client.start(config.to_dict())
        _at(running, 2)
        meter = Meter(running, n)
        _at(running, course.joins)
        running.signal(transient, JOIN)
        _at(running, course.leaves)
        for name in transient:
            running.client.notice(name, course.notice_s)
        left_in = _gone_when_drained(running, transient)
        _at(running, course.clocks)
        cpu, ours, _ = meter.read()
        result = finished(running, load, course.clocks)
        survivors = [waits(parse_kernels(running.log(f"r{i}").read_text())) for i in range(_RELIABLE)]
    seconds = result["seconds_by_clock"]
    again = f"{result['repeated_micro_tasks']} micro-tasks done again; {_busy(cpu, ours)}"
    figures = []
    for what, announced_in, clock, most in (
        ("join", course.joins, course.joins, _JOIN),
        ("leave with notice", course.leaves, left_in, _LEAVE),
    ):
        event = f"{n - _RELIABLE} nodes {what}, {_RELIABLE} stay"
        slower, usual_s = slowdown(seconds, clock, announced_in), usual(seconds, clock, announced_in)
        first, last = max(1, announced_in - NEIGHBOURS), min(course.clocks, clock + AFFECTED + NEIGHBOURS)
        around = " ".join(f"{took_s:.1f}" for took_s in seconds[first - 1 : last])
        note = (
            f"clock {clock} of {course.clocks}, announced in {announced_in}, its neighbours {usual_s:.2f} s; {again}; "
            f"seconds of the clocks {first} to {last}: {around}"
        )
        figures.append(
            _figure(
                f"{event}: a clock is longer than its neighbours by",
                "share",
                [slower],
                most,
                note,
                valid=cpu <= MOST_CPU,
            )
        )
        held_up = _MS * stall(survivors, clock, announced_in)
        note_held_up = (
            "kernels of a clock after those of the one before, against the neighbouring clocks; most of the nodes"
        )
        figures.append(
            _figure(
                f"{event}: a survivor is held up",
                "ms",
                [held_up],
                _MS * usual_s,
                note_held_up,
                "a neighbouring clock",
                cpu <= MOST_CPU,
            )
        )
    return seconds, figures


def lose(cluster: Places, n: int, load: Workload | None = None) -> list[Figure]:
    """Return the figures of killing all transient nodes, of `_KILLS` jobs."""
    losses = [_lose_once(cluster, n, load or load_for(n)) for _ in range(_KILLS)]
    event = f"{n - _RELIABLE} nodes killed, {_RELIABLE} stay"
    busiest = max(losses, key=lambda loss: loss.cpu)
    valid = busiest.cpu <= MOST_CPU
    busy = _busy(busiest.cpu, busiest.ours)
    each = ", ".join(f"{loss.resumed_s:.2f} s" for loss in losses)
    return [
        _figure(
            f"{event}: dispatched again after",
            "s",
            [loss.resumed_s for loss in losses],
            _RESUMES_S,
            f"rolled back to one clock; each: {each}; {busy}",
            valid=valid,
        ),
        _figure(
            f"{event}: common clocks done again",
            "clocks",
            [loss.again for loss in losses],
            _AGAIN,
            f"killed in clock {_KILLED_IN}; {busy}",
            valid=valid,
        ),
        _figure(
            f"{event}: a survivor is held up",
            "ms",
            [_MS * loss.held_up_s for loss in losses],
            _MS * median(loss.usual_s for loss in losses),
            f"kernels of a clock after those of the one before, against the clocks before; most of the nodes; {busy}",
            "a clock before",
            valid,
        ),
    ]


def _lose_once(cluster: Places, n: int, load: Workload) -> Loss:
    clock, last = SystemClock(), _KILLED_IN + 1
    with cluster.job() as running:
        transient = running.start(_RELIABLE, n - _RELIABLE)
        running.until(all_there(n))
        running.client.hold(0)
        config = load.config(running.name, running.blobs, last, _RELIABLE, None)
        running.client.start(config.to_dict())
        running.until(served_by((n - _RELIABLE + 1) // 2, replicated=True))
        running.client.hold(None)
        meter = Meter(running, n)
        before = _at(running, _KILLED_IN)
        cpu, ours, _ = meter.read()  # while the nodes still exist
        began_s, killed_s = clock.now_s(), time.monotonic()
        running.signal(transient, signal.SIGKILL)
        status = running.until(_goes_on)
        resumed_s = clock.now_s() - began_s
        back_to = min(back["clock"] for back in status["went_back"])
        seconds = finished(running, load, last)["seconds_by_clock"]
        survivors = [parse_kernels(running.log(f"r{i}").read_text()) for i in range(_RELIABLE)]
    undisturbed = range(_USUAL_FROM, _KILLED_IN - 1)
    held_up_s = max(
        max(waits(kernels, killed_s).values(), default=0.0)
        - median(waits(kernels).get(earlier, 0.0) for earlier in undisturbed)
        for kernels in survivors
    )
    usual_s = median(seconds[earlier - 1] for earlier in undisturbed)
    # At least 0, as in `stall`: in a small job no node may wait longer than before.
    return Loss(resumed_s, before["clock"] - back_to, max(held_up_s, 0.0), usual_s, cpu, ours)


def _at(running: RunningCluster, clock: int) -> dict[str, Any]:
    """Return the status once `clock` is under way, or the job has ended."""
    return running.until(lambda status: status["clock"] >= clock - 1 or status["state"] == "finished", HOURS_S)


def _goes_on(status: dict[str, Any]) -> bool:
    """Whether micro-tasks run on present nodes after the rollback."""
    running = any(node["running"] and not node["gone"] for node in status["nodes"])
    return bool(status["went_back"]) and running and len({shard["node"] for shard in status["shards"]}) == _RELIABLE


def _gone_when_drained(running: RunningCluster, names: list[str]) -> int:
    """End nodes once they are drained, as a market does; return the first clock that none of them works on.

    They work on as long as their notice permits.
    """
    left = set(names)

    def drained(status: dict[str, Any]) -> bool:
        free = {node["name"] for node in status["nodes"] if node["state"] == "drained"} & left
        running.signal(sorted(free), signal.SIGTERM)
        left.difference_update(free)
        return not left or status["state"] == "finished"

    status = running.until(drained, HOURS_S)
    if left or status["state"] == "finished":
        raise RuntimeError("the job ended before all nodes with a notice were drained")
    return int(status["clock"]) + 1


def _busy(cpu: float, ours: float) -> str:
    return f"host's CPU {cpu:.0%} (nodes {ours:.0%})" + ("" if cpu <= MOST_CPU else f": INVALID, above {MOST_CPU:.0%}")


def _figure(
    what: str,
    unit: str,
    ours: Sequence[float],
    beside: float,
    note: str = "",
    beside_is: str = "the most asked for",
    valid: bool = True,
) -> Figure:
    return figure("elasticity", what, unit, list(ours), [beside], beside_is, note, valid)


def _draw(seconds: list[float], course: Course, n: int, picture: Path) -> None:
    from proteus_spot.benchmarks.papers.many_nodes.pictures import draw_elasticity

    more = n - _RELIABLE
    events = {course.joins: f"{more} join", course.leaves: f"notice to {more}"}
    draw_elasticity(seconds, events, f"{_RELIABLE} reliable nodes, and {more} transient ones for a while", picture)
