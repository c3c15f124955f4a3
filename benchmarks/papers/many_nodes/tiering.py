"""Benchmark `tiering`: a clock of AgileML's stages beside a parameter server without tiers, as in Figs. 11-14.

Every node is a process behind its own link (`network_namespaces`), and runs the real node program. Only its kernel
sleeps instead of computing (`sleeping_app`), because all nodes share the processors of one machine. The link's rate is
chosen for the number of nodes (`layouts`), the same for all layouts, so that the machine's processors do not limit the
result; their load is reported, and if it was too high, the result is marked invalid.
"""

from __future__ import annotations

from pathlib import Path

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.many_nodes.cluster import Places, places
from proteus_spot.benchmarks.papers.many_nodes.layouts import (
    PAPER_FIGURES,
    TABLE_BYTES,
    TierLayout,
    table_seconds,
    tierings,
    traditional,
)
from proteus_spot.benchmarks.papers.many_nodes.measurement import Measured, load_for, measure
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import lacking

NODES = (16,)
#: Required range of the share of a traditional clock that is not spent in kernels; links and kernels are chosen for it.
COMMUNICATING = (0.4, 0.6)


def run(
    scratch: Path,
    nodes: tuple[int, ...] = NODES,
    picture: Path | None = None,
    figures: tuple[int, ...] = PAPER_FIGURES,
) -> list[Figure]:
    """Measure the layouts of the paper's `figures`; no figures if namespaces cannot be created."""
    if reason := lacking():
        print(f"tiering: skipped: {reason}")
        return []
    found: list[tuple[Measured, Measured]] = []
    for n in nodes:
        found += _of(n, figures, scratch / str(n))
    if picture is not None:
        from proteus_spot.benchmarks.papers.many_nodes.pictures import draw_tiering

        draw_tiering(found, picture)
    return [_figure(one, beside) for one, beside in found]


def _of(n: int, figures: tuple[int, ...], folder: Path) -> list[tuple[Measured, Measured]]:
    """Return each layout of `n` nodes, and the traditional one beside it."""
    unit_s = table_seconds(n)
    with places(n, round(TABLE_BYTES / unit_s), folder) as cluster:
        found = [_one(cluster, layout, unit_s) for layout in (traditional(n), *tierings(n, figures))]
    return [(one, found[0]) for one in found]


def _one(cluster: Places, layout: TierLayout, unit_s: float) -> Measured:
    slow = layout.stage == 1 and layout.nodes > 4 * layout.reliable
    return measure(cluster, layout, load_for(layout, unit_s), quick=slow)


def _figure(one: Measured, beside: Measured) -> Figure:
    layout = one.layout
    what = f"Fig. {layout.figure}: a clock, {layout.name}, {layout.tiers} nodes (reliable + transient)"
    doubt = _not_as_meant(beside)
    valid = one.valid and beside.valid and not doubt
    peer = f"traditional, {beside.layout.nodes} nodes"
    return figure("tiering", what, "s", one.seconds, beside.seconds, peer, one.note + doubt, valid)


def _not_as_meant(traditional: Measured) -> str:
    """Return a note if the share of communication is out of range; mostly empty."""
    low, high = COMMUNICATING
    if low <= traditional.communicating <= high:
        return ""
    share = f"{traditional.communicating:.0%} of the traditional layout's clock is not in kernels"
    return f"; NOT AS MEANT: {share}, where {low:.0%} to {high:.0%} are wanted"
