"""Benchmark `scaling` (Fig. 15): strong scaling of one job on 4 to 64 nodes, beside ideal scaling of the first.

Set up as `tiering`, with one table and one link rate for all. The work of a clock is the same on any number of nodes,
but every node reads the table and sends an update of the same size: with sixteen times the nodes this dominates. So the
notes give the duration of a clock with infinitely fast links.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.many_nodes.cluster import Workload, places
from proteus_spot.benchmarks.papers.many_nodes.layouts import STALENESS, TABLE_BYTES, TierLayout, scalings
from proteus_spot.benchmarks.papers.many_nodes.measurement import Measured, measure
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import lacking

NODES = (16,)
#: Seconds of kernels per clock on each of sixteen nodes, and of a table over a link.
_KERNEL_S, _TABLE_S = 4.0, 0.5


def run(scratch: Path, nodes: tuple[int, ...] = NODES, picture: Path | None = None) -> list[Figure]:
    """Measure four nodes, and each of `nodes`; no figures if namespaces cannot be created."""
    if reason := lacking():
        print(f"scaling: skipped: {reason}")
        return []
    most = max(nodes)
    table_s, work_s = table_and_work(most)
    with places(most, round(TABLE_BYTES / table_s), scratch) as cluster:
        found = [
            measure(cluster, layout, load_for(layout, work_s), quick=layout.nodes < min(NODES))
            for layout in scalings()
            if layout.nodes < min(NODES) or layout.nodes in nodes
        ]
    if picture is not None:
        from proteus_spot.benchmarks.papers.many_nodes.pictures import draw_scaling

        draw_scaling(found, picture)
    return [_figure(one, found[0], work_s) for one in found]


def table_and_work(most: int) -> tuple[float, float]:
    """Return the seconds of a table over a link, and those of all kernels of a clock, for up to `most` nodes.

    More nodes have more messages, which take two cores longer; kernels take longer too, but less so, since otherwise a
    few nodes would run for hours.
    """
    ratio = most / 16
    return _TABLE_S * max(1.0, ratio**2 / 2), _KERNEL_S * ratio**0.5 * most


def load_for(layout: TierLayout, work_s: float, table_bytes: int = TABLE_BYTES) -> Workload:
    """Return the workload for a layout: one micro-task per worker and clock."""
    return Workload(table_bytes, work_s, layout.workers, layout.servers, STALENESS)


def ideal(first: Measured, nodes: int) -> list[float]:
    """Return the seconds of the first layout's clocks on `nodes` nodes under ideal scaling."""
    return [seconds * first.layout.nodes / nodes for seconds in first.seconds]


def _figure(one: Measured, first: Measured, work_s: float) -> Figure:
    layout = one.layout
    what = f"Fig. 15: a clock, {layout.name}, {layout.tiers} nodes"
    speedup = median(first.seconds) / median(one.seconds)
    note = f"{speedup:.1f} x as fast as {first.layout.nodes} nodes; kernels {work_s / layout.workers:.2f} s; {one.note}"
    beside = ideal(first, layout.nodes)
    return figure("scaling", what, "s", one.seconds, beside, f"ideal: that of {first.layout.nodes} divided", note)
