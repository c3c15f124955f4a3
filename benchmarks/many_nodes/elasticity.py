"""Many transient nodes join a training at once, leave it at once with notice, and are lost at once without: Fig. 16.

Set up as `tiering` is. Nodes that are to join are processes before the first measured clock, so that the machine's own
processors are not busy with that, and become nodes when they are told to.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figure import Figure, figure
from benchmarks.many_nodes.cluster import Places, RunningCluster, Workload, all_there, places, served_by
from benchmarks.many_nodes.fork_server import JOIN
from benchmarks.many_nodes.layouts import KERNEL, STALENESS, TABLE_BYTES, table_seconds
from benchmarks.many_nodes.measurement import HOURS_S, MOST_CPU, Meter, finished
from benchmarks.many_nodes.network_namespaces import lacking
from benchmarks.many_nodes.sleeping_app import told
from benchmarks.many_nodes.stalls import slowdown, stall, usual, waits
from infra.clock import SystemClock

NODES = (16,)
_RELIABLE = 4
#: What is asked for: shares by which a clock may be longer than its neighbours, seconds, and clocks done again.
_JOIN, _LEAVE, _RESUMES_S, _AGAIN = 0.05, 0.13, 2.0, 1 + STALENESS
#: Jobs that lose all their transient nodes, each in this clock: how quickly that is noticed differs from one to the next.
_KILLS, _KILLED_IN = 3, 4
#: Micro-tasks a node, when all are there: a survivor's own may run for so much of a clock after the others are lost.
_PARTS = 4
_MS = 1e3


@dataclass(frozen=True)
class Course:
    """Clocks in which nodes join and are given notice, the last one, and the seconds of the notice."""

    joins: int
    leaves: int
    clocks: int
    notice_s: float


@dataclass(frozen=True)
class Loss:
    """Seconds until survivors have micro-tasks again, common clocks done again, and seconds that a survivor was held up.

    `usual_s`: of a clock before. `cpu`, `ours`: share of the machine's processors that was used, by all and by the nodes.
    """

    resumed_s: float
    again: int
    held_up_s: float
    usual_s: float
    cpu: float
    ours: float


#: The paper's, and a shorter one.
FIG_16, SHORT = Course(11, 35, 45, 120.0), Course(6, 16, 28, 40.0)


def run(scratch: Path, nodes: tuple[int, ...] = NODES, picture: Path | None = None) -> list[Figure]:
    """Measure; nothing where there can be no namespaces."""
    if reason := lacking():
        print(f"elasticity: skipped: {reason}")
        return []
    figures: list[Figure] = []
    for n in nodes:
        with places(n, round(TABLE_BYTES / table_seconds(n)), scratch / str(n)) as there:
            course = FIG_16 if n >= 64 else SHORT
            seconds, told_of = join_and_leave(there, n, course)
            figures += told_of
            figures += lose(there, n)
        if picture is not None:
            _draw(seconds, course, n, picture if len(nodes) == 1 else picture.with_stem(f"{picture.stem}-{n}"))
    return figures


def kernels_s(n: int) -> float:
    """Return the seconds of kernels a clock on each of `n` nodes.

    Tables take longer with more nodes (`table_seconds`), kernels not as much: four of sixty-four nodes would be at it for
    three minutes a clock.
    """
    return KERNEL * table_seconds(16) * math.sqrt(n / 16)


def load_for(n: int, table_bytes: int = TABLE_BYTES) -> Workload:
    """Return the job: as many shards as both four nodes and the ActivePSs can share out evenly."""
    active = (n - _RELIABLE + 1) // 2
    shards = next(shards for shards in range(active, 8 * active + 1) if shards % active == shards % _RELIABLE == 0)
    return Workload(table_bytes, kernels_s(n) * n, _PARTS * n, shards, STALENESS, tells=True)


def join_and_leave(
    there: Places, n: int, course: Course, load: Workload | None = None
) -> tuple[list[float], list[Figure]]:
    """Return the seconds of each clock, and what the two changes cost."""
    load = load or load_for(n)
    with there.job() as running:
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
        survivors = [waits(told(running.log(f"r{i}").read_text())) for i in range(_RELIABLE)]
    seconds = result["seconds_by_clock"]
    again = f"{result['repeated_micro_tasks']} micro-tasks done again; {_busy(cpu, ours)}"
    figures = []
    for what, told_in, clock, most in (
        ("join", course.joins, course.joins, _JOIN),
        ("leave with notice", course.leaves, left_in, _LEAVE),
    ):
        event = f"{n - _RELIABLE} nodes {what}, {_RELIABLE} stay"
        slower, usual_s = slowdown(seconds, clock, told_in), usual(seconds, clock, told_in)
        note = f"clock {clock} of {course.clocks}, told in {told_in}, its neighbours {usual_s:.2f} s; {again}"
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
        held_up = _MS * stall(survivors, clock, told_in)
        told_how = (
            "kernels of a clock after those of the one before, against the neighbouring clocks; most of the nodes"
        )
        figures.append(
            _figure(
                f"{event}: a survivor is held up",
                "ms",
                [held_up],
                _MS * usual_s,
                told_how,
                "a neighbouring clock",
                cpu <= MOST_CPU,
            )
        )
    return seconds, figures


def lose(there: Places, n: int, load: Workload | None = None) -> list[Figure]:
    """Return what it costs that all transient nodes are killed, of `_KILLS` jobs."""
    losses = [_lose_once(there, n, load or load_for(n)) for _ in range(_KILLS)]
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
            f"all went back to one clock; one by one: {each}; {busy}",
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


def _lose_once(there: Places, n: int, load: Workload) -> Loss:
    clock, last = SystemClock(), _KILLED_IN + 1
    with there.job() as running:
        transient = running.start(_RELIABLE, n - _RELIABLE)
        running.until(all_there(n))
        running.client.hold(0)
        config = load.config(running.name, running.blobs, last, _RELIABLE, None)
        running.client.start(config.to_dict())
        running.until(served_by((n - _RELIABLE + 1) // 2, kept=True))
        running.client.hold(None)
        meter = Meter(running, n)
        before = _at(running, _KILLED_IN)
        cpu, ours, _ = meter.read()  # later there are no nodes to ask
        began_s = clock.now_s()
        running.signal(transient, signal.SIGKILL)
        status = running.until(_goes_on)
        resumed_s = clock.now_s() - began_s
        back_to = min(back["clock"] for back in status["went_back"])
        seconds = finished(running, load, last)["seconds_by_clock"]
        survivors = [waits(told(running.log(f"r{i}").read_text())) for i in range(_RELIABLE)]
    undisturbed = range(2, _KILLED_IN - 1)
    held_up_s = max(
        max(waited.get(of, 0.0) for of in range(back_to + 1, last + 1))
        - median(waited.get(of, 0.0) for of in undisturbed)
        for waited in survivors
    )
    usual_s = median(seconds[of - 1] for of in undisturbed)
    # Less than none is none, as with `stall`: of a small job nobody may wait longer than before.
    return Loss(resumed_s, before["clock"] - back_to, max(held_up_s, 0.0), usual_s, cpu, ours)


def _at(running: RunningCluster, clock: int) -> dict[str, Any]:
    """Return the status once `clock` is under way, or the job has ended."""
    return running.until(lambda status: status["clock"] >= clock - 1 or status["state"] == "finished", HOURS_S)


def _goes_on(status: dict[str, Any]) -> bool:
    """Whether micro-tasks run on nodes that are there, after all have gone back."""
    running = any(node["running"] and not node["gone"] for node in status["nodes"])
    return bool(status["went_back"]) and running and len({shard["node"] for shard in status["shards"]}) == _RELIABLE


def _gone_when_drained(running: RunningCluster, names: list[str]) -> int:
    """End nodes as soon as they may go, as a market does; return the first clock that none of them works on.

    They work on while the notice lets them.
    """
    left = set(names)

    def drained(status: dict[str, Any]) -> bool:
        free = {node["name"] for node in status["nodes"] if node["state"] == "drained"} & left
        running.signal(sorted(free), signal.SIGTERM)
        left.difference_update(free)
        return not left or status["state"] == "finished"

    status = running.until(drained, HOURS_S)
    if left or status["state"] == "finished":
        raise RuntimeError("the job ended before all nodes that were given notice might go")
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
    from benchmarks.many_nodes.pictures import draw_elasticity

    more = n - _RELIABLE
    events = {course.joins: f"{more} join", course.leaves: f"notice to {more}"}
    draw_elasticity(seconds, events, f"{_RELIABLE} reliable nodes, and {more} transient ones for a while", picture)
