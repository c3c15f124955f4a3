"""Jobs on many nodes of which some join or go in the middle: the parts `scale_out` and `scale_in`.

The nodes are those of `bench elasticity`; kernels wait the time that was measured on one node (see `waiting_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proteus_spot.benchmarks.papers.litz.waiting_job import MeasuredJob, StandIn, measured_lda, measured_mlr
from proteus_spot.benchmarks.papers.many_nodes.cluster import Places, RunningCluster, all_there, places
from proteus_spot.benchmarks.papers.many_nodes.fork_server import JOIN
from proteus_spot.benchmarks.papers.many_nodes.measurement import HOURS_S, MOST_CPU, Meter
from proteus_spot.benchmarks.pictures import panels, write

#: {application: function that measures it in a folder}
MEASURED: Mapping[str, Callable[[Path], MeasuredJob]] = MappingProxyType({"mlr": measured_mlr, "lda": measured_lda})
#: Bytes per second of a node's link, each way, of a job without states.
_LINK = 12_500_000
#: Seconds in which a node's link carries its share of the states.
_STATES_S = 4.0


@dataclass(frozen=True)
class RunSize:
    """How much is measured.

    Attributes
    ----------
    nodes : of which half join or go.
    clocks : {application: clocks of its job}. All runs of both parts together take about nine minutes.
    clock_s : {application: seconds of kernels in each clock on one node}. Kernels of `lda` take most of a clock, though
        its links are slow; else a job would gain little from more nodes.
    """

    nodes: int = 8
    clocks: Mapping[str, int] = field(default_factory=lambda: {"mlr": 48, "lda": 16})
    clock_s: Mapping[str, float] = field(default_factory=lambda: {"mlr": 4.0, "lda": 16.0})
    rounds: int = 1


FULL = RunSize()


@contextmanager
def stand_in(app: str, scratch: Path, size: RunSize) -> Iterator[tuple[StandIn, Places]]:
    """Measure an application; yield its stand-in, and the nodes on which it can run."""
    measured = MEASURED[app](scratch / f"measured-{app}")
    job = StandIn(measured, size.nodes, size.clocks[app], size.clock_s[app] / measured.pass_s)
    with places(job.n_nodes, link_rate(job), scratch / app) as cluster:
        yield job, cluster


@dataclass(frozen=True)
class ScaledRun:
    """A job that has run.

    Attributes
    ----------
    seconds : of each clock.
    changed_after : number of clocks after which nodes were added, or asked for; None: never.
    cpu : share of the machine's processors that was used.
    """

    seconds: list[float]
    changed_after: int | None
    cpu: float

    @property
    def total_s(self) -> float:
        """Seconds of all clocks."""
        return sum(self.seconds)


def link_rate(job: StandIn) -> int:
    """Return the bytes per second of a node's link, each way: what a node has of states takes a while on it."""
    states = job.measured.state_bytes
    return round(states / job.n_nodes / _STATES_S) if states else _LINK


def load(*runs: ScaledRun) -> tuple[str, bool]:
    """Return the greatest load of the machine's processors as a note, and whether it is low enough."""
    cpu = max(run.cpu for run in runs)
    return f"host's CPU {cpu:.0%}", cpu <= MOST_CPU


def static(cluster: Places, job: StandIn, n: int) -> ScaledRun:
    """Run a job on `n` nodes."""
    return scale_out(cluster, job, n, n, None)


def scale_out(cluster: Places, job: StandIn, few: int, many: int, after: int | None) -> ScaledRun:
    """Run a job on `few` nodes; from the end of clock `after`, it has `many` nodes."""
    with cluster.job() as running:
        more = running.start(few, many - few, join=False)
        running.until(all_there(few))
        running.client.start(job.config(running.name, running.blobs, few).to_dict())
        running.until(lambda status: status["clock"] >= 1, HOURS_S)
        meter, changed = Meter(running, many), None
        if after is not None:
            status = running.until(lambda status: status["clock"] >= after, HOURS_S)
            running.signal(more, JOIN)
            changed = int(status["clock"])
        status = finished(cluster, running, job)
        cpu, *_ = meter.read()
        job.check(status["result"]["metrics"])
        return ScaledRun(status["result"]["seconds_by_clock"], changed, cpu)


def finished(cluster: Places, running: RunningCluster, job: StandIn) -> dict[str, Any]:
    """Return the status of a job whose model is saved: over faster links, since nothing is timed after the clocks."""
    running.until(lambda status: status["clock"] >= job.clocks or status["state"] == "finished", HOURS_S)
    cluster.network.set_rate(_LINK)
    status = running.until(lambda status: status["state"] == "finished", HOURS_S)
    cluster.network.set_rate(link_rate(job))
    return status


def draw(courses: Mapping[str, Mapping[str, ScaledRun]], target: Path) -> None:
    """Draw the clocks over time of each course."""
    canvas, axes = panels((6.0, 2.6 * len(courses)), len(courses))
    for axis, (app, by_name) in zip(axes, courses.items(), strict=True):
        for name, course in by_name.items():
            ends = [sum(course.seconds[:clock]) for clock in range(len(course.seconds) + 1)]
            axis.plot(ends, range(len(ends)), label=name)
        axis.set_title(f"{app}: common clock by second", fontsize=8)
        axis.legend(fontsize=7)
    write(canvas, target)
