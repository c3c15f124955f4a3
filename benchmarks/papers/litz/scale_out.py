"""Part `scale-out`: the nodes are doubled in the middle of a job (section 4.2.1, Figs. 6 to 8 of the paper).

The ideal is a job that scales out at once and for nothing: the time until the nodes were added, and then that of the
larger number of nodes for the work that is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import click

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.litz.scaled_runs import (
    FULL,
    MEASURED,
    RunSize,
    ScaledRun,
    draw,
    link_rate,
    load,
    scale_out,
    stand_in,
    static,
)
from proteus_spot.benchmarks.papers.litz.waiting_job import StandIn
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import lacking


@dataclass(frozen=True)
class Aim:
    """What the paper has: when nodes are added, and the limits of the time against the ideal and the static job."""

    added_after: float
    of_ideal: float
    of_static: float


AIMS: Mapping[str, Aim] = MappingProxyType({"mlr": Aim(0.25, 1.01, 1 - 0.22), "lda": Aim(0.30, 1.08, 1 - 0.25)})


@dataclass(frozen=True)
class ScaleOutRuns:
    """A job on half of the nodes, on all, and on half with the others added in the middle."""

    few: ScaledRun
    many: ScaledRun
    scaled: ScaledRun

    @property
    def ideal_s(self) -> float:
        """Seconds of a job that scales out at once and for nothing."""
        begun = self.scaled.changed_after
        return sum(self.scaled.seconds[:begun]) + sum(self.many.seconds[begun:])


def run(scratch: Path, picture: Path | None = None, size: RunSize = FULL) -> Iterator[Figure]:
    """Measure; no figures if namespaces cannot be created."""
    if reason := lacking():
        print(f"litz: scale-out is skipped: {reason}")
        return
    courses: dict[str, dict[str, ScaledRun]] = {}
    for app in MEASURED:
        with stand_in(app, scratch, size) as (job, cluster):
            n, half = job.n_nodes, job.n_nodes // 2
            after = round(AIMS[app].added_after * job.clocks)
            found = []
            for number in range(size.rounds):
                few, many = static(cluster, job, half), static(cluster, job, n)
                one = ScaleOutRuns(few, many, scale_out(cluster, job, half, n, after))
                click.echo(
                    f"{app}, run {number + 1} of {size.rounds}: {one.scaled.total_s:.2f} s, ideal {one.ideal_s:.2f} s, "
                    f"{half} nodes {few.total_s:.2f} s, {n} nodes {many.total_s:.2f} s",
                    err=True,
                )
                found.append(one)
        first = found[0]
        courses[app] = {f"{half} nodes": first.few, f"{n} nodes": first.many, f"{half} to {n} nodes": first.scaled}
        yield from figures(job, found)
    if picture is not None:
        draw(courses, picture)


def figures(job: StandIn, found: Sequence[ScaleOutRuns]) -> Iterator[Figure]:
    """Yield the seconds of the job beside the ideal, and beside half of the nodes throughout."""
    app, half = job.measured.app, job.n_nodes // 2
    aim, (busy, is_valid) = AIMS[app], load(*(one for runs in found for one in (runs.few, runs.many, runs.scaled)))
    changed = ", ".join(str(runs.scaled.changed_after) for runs in found)
    note = f"added after clock {changed} of {job.clocks}; {_sizes(job)}; {busy}"
    limits = (
        ("the ideal", [runs.ideal_s for runs in found], aim.of_ideal),
        (f"{half} nodes throughout", [runs.few.total_s for runs in found], aim.of_static),
    )
    for beside, beside_s, most in limits:
        yield figure(
            "litz",
            f"{app}, {half} nodes and {half} more in the middle",
            "s",
            [runs.scaled.total_s for runs in found],
            beside_s,
            beside,
            note,
            is_valid,
            most,
        )


def _sizes(job: StandIn) -> str:
    measured = job.measured
    return (
        f"kernels of {job.clock_s:.1f} s a clock ({job.passes_a_clock:.1f} passes), tables "
        f"{measured.table_bytes / 1e6:.1f} MB, states {measured.state_bytes / 1e6:.1f} MB, input "
        f"{measured.input_bytes / 1e6:.0f} MB, links {link_rate(job) / 1e6:.2f} MB/s"
    )
