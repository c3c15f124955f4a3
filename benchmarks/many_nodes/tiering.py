"""AgileML's stages beside a parameter server without tiers: the time of a clock, in Figs. 11-14's layouts.

Every node is a process of its own behind a link of its own (`netns`), and runs what a node runs. Only its kernel waits
instead of computing (`waiting`), because all of them share the processors of one machine. The link's rate is chosen for
the number of nodes (`layouts`), the same for all layouts, so that the machine's own processors are no part of the result;
how busy they were is told, and where that was too much the result is said to be invalid.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figure import Figure, figure
from benchmarks.many_nodes.cluster import Places, places
from benchmarks.many_nodes.layouts import PAPER_FIGURES, TABLE_BYTES, TierLayout, table_seconds, tierings, traditional
from benchmarks.many_nodes.measurement import Measured, load_for, measure
from benchmarks.many_nodes.network_namespaces import lacking

NODES = (16,)
#: Shares of a clock of the traditional layout that are not to be kernels: links and kernels are chosen for that.
COMMUNICATING = (0.4, 0.6)


def run(
    scratch: Path,
    nodes: tuple[int, ...] = NODES,
    picture: Path | None = None,
    figures: tuple[int, ...] = PAPER_FIGURES,
) -> list[Figure]:
    """Measure the layouts of the paper's `figures`; nothing where there can be no namespaces."""
    if reason := lacking():
        print(f"tiering: skipped: {reason}")
        return []
    found: list[tuple[Measured, Measured]] = []
    for n in nodes:
        found += _of(n, figures, scratch / str(n))
    if picture is not None:
        from benchmarks.many_nodes.pictures import draw_tiering

        draw_tiering(found, picture)
    return [_figure(one, beside) for one, beside in found]


def _of(n: int, figures: tuple[int, ...], folder: Path) -> list[tuple[Measured, Measured]]:
    """Return each layout of `n` nodes, and the traditional one beside it."""
    unit_s = table_seconds(n)
    with places(n, round(TABLE_BYTES / unit_s), folder) as there:
        found = [_one(there, layout, unit_s) for layout in (traditional(n), *tierings(n, figures))]
    return [(one, found[0]) for one in found]


def _one(there: Places, layout: TierLayout, unit_s: float) -> Measured:
    slow = layout.stage == 1 and layout.nodes > 4 * layout.reliable
    return measure(there, layout, load_for(layout, unit_s), quick=slow)


def _figure(one: Measured, beside: Measured) -> Figure:
    layout = one.layout
    what = f"Fig. {layout.figure}: a clock, {layout.name}, {layout.tiers} nodes (reliable + transient)"
    doubt = _not_as_meant(beside)
    valid = one.valid and beside.valid and not doubt
    peer = f"traditional, {beside.layout.nodes} nodes"
    return figure("tiering", what, "s", one.seconds, beside.seconds, peer, one.note + doubt, valid)


def _not_as_meant(traditional: Measured) -> str:
    """Return what is to be said where links and kernels stand otherwise to each other than they are to; mostly nothing."""
    low, high = COMMUNICATING
    if low <= traditional.communicating <= high:
        return ""
    share = f"{traditional.communicating:.0%} of the traditional layout's clock is not in kernels"
    return f"; NOT AS MEANT: {share}, where {low:.0%} to {high:.0%} are wanted"
