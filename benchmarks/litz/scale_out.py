"""Part `scale-out`: the nodes are doubled in the middle of a job (section 4.2.1, Figs. 6 to 8 of the paper).

The ideal is a job that scales out at once and for nothing: the time until the nodes were added, and then that of the
larger number of nodes for the work that is left. The nodes are those of `bench elasticity`; kernels wait the time that
was measured on one node (see `waiting_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.figure import Figure, figure
from benchmarks.litz.waiting_job import MeasuredJob, StandIn, measured_lda, measured_mlr
from benchmarks.many_nodes.cluster import Places, all_there, places
from benchmarks.many_nodes.fork_server import JOIN
from benchmarks.many_nodes.measurement import HOURS_S, MOST_CPU, Meter
from benchmarks.many_nodes.network_namespaces import lacking
from benchmarks.pictures import panels, write

NODES = 8
#: Clocks of a job, and seconds of kernels in each on one node.
CLOCKS, CLOCK_S = 40, 4.0
#: Bytes per second of a node's link, each way, of a job without states.
_LINK = 12_500_000
#: Seconds in which a node's link carries its share of the states.
_STATES_S = 4.0


@dataclass(frozen=True)
class Aim:
    """What the paper has: when nodes are added, and the limits of the time against the ideal and the static job."""

    added_after: float
    of_ideal: float
    of_static: float


AIMS: Mapping[str, Aim] = MappingProxyType({"mlr": Aim(0.25, 1.01, 1 - 0.22), "lda": Aim(0.30, 1.08, 1 - 0.25)})


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


def run(
    scratch: Path,
    picture: Path | None = None,
    n: int = NODES,
    clocks: int = CLOCKS,
    clock_s: float = CLOCK_S,
    measured: Mapping[str, Callable[[Path], MeasuredJob]] | None = None,
) -> Iterator[Figure]:
    """Measure; no figures if namespaces cannot be created."""
    if reason := lacking():
        print(f"litz: scale-out is skipped: {reason}")
        return
    courses: dict[str, dict[str, ScaledRun]] = {}
    for app, measure in (measured or {"mlr": measured_mlr, "lda": measured_lda}).items():
        job = measure(scratch / f"measured-{app}")
        stand_in, aim = StandIn(job, n, clocks, clock_s / job.pass_s), AIMS[app]
        after = round(aim.added_after * clocks)
        with places(n, link_rate(stand_in), scratch / app) as cluster:
            few = static(cluster, stand_in, n // 2)
            many = static(cluster, stand_in, n)
            scaled = scale_out(cluster, stand_in, n // 2, n, after)
        courses[app] = {f"{n // 2} nodes": few, f"{n} nodes": many, f"{n // 2} to {n} nodes": scaled}
        begun = scaled.changed_after or after
        ideal_s = sum(scaled.seconds[:begun]) + sum(many.seconds[begun:])
        cpu = max(course.cpu for course in courses[app].values())
        note = f"added after clock {begun} of {clocks}; {_sizes(stand_in)}; host's CPU {cpu:.0%}"
        what = f"{app}, {n // 2} nodes and {n // 2} more in the middle"
        limits = (
            ("the ideal", ideal_s, aim.of_ideal),
            (f"{n // 2} nodes throughout", few.total_s, aim.of_static),
        )
        for beside, beside_s, most in limits:
            asked = f"asked: at most {most:.2f}"
            yield figure("litz", what, "s", [scaled.total_s], [beside_s], beside, f"{asked}; {note}", cpu <= MOST_CPU)
    if picture is not None:
        draw(courses, picture)


def link_rate(job: StandIn) -> int:
    """Return the bytes per second of a node's link, each way: what a node has of states takes a while on it."""
    states = job.measured.state_bytes
    return round(states / job.n_nodes / _STATES_S) if states else _LINK


def static(cluster: Places, job: StandIn, n: int) -> ScaledRun:
    """Run a job on `n` nodes."""
    return scale_out(cluster, job, n, n, None)


def scale_out(cluster: Places, job: StandIn, few: int, many: int, after: int | None) -> ScaledRun:
    """Run a job on `few` nodes; with the end of clock `after`, `many` nodes are there."""
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
        status = running.until(lambda status: status["state"] == "finished", HOURS_S)
        cpu, *_ = meter.read()
        job.check(status["result"]["metrics"])
        return ScaledRun(status["result"]["seconds_by_clock"], changed, cpu)


def _sizes(job: StandIn) -> str:
    measured = job.measured
    return (
        f"kernels of {job.clock_s:.1f} s a clock ({job.passes_a_clock:.1f} passes), tables "
        f"{measured.table_bytes / 1e6:.1f} MB, states {measured.state_bytes / 1e6:.1f} MB, input "
        f"{measured.input_bytes / 1e6:.0f} MB, links {link_rate(job) / 1e6:.2f} MB/s"
    )


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
