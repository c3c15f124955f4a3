"""Layouts of AgileML's tiers that the benchmarks of many nodes compare, and links and kernels that suit one machine.

Arithmetic only. The unit is the *table time*: the seconds that the full table takes over one link. With bulk reads and
pushes every node receives the table once per clock and sends an update of the same size; if all nodes serve, its link
carries as much again for the reads and pushes of the others, in the other direction at the same time. So a clock in
which kernels take a little more than two table times spends about half of its time communicating.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from proteus_spot.psengine.config import Stage

PAPER_FIGURES = (11, 12, 13, 14)
TABLE_BYTES = 4_000_000
#: Kernel time of a clock, in table times, if all nodes work alike.
KERNEL = 2.5
#: Bulk synchronous, all nodes read together and push together, and a link that serves two nodes takes twice as long for
#: both; a clock of slack lets some nodes read while others compute. The same for all layouts.
STALENESS = 1


@dataclass(frozen=True)
class TierLayout:
    """Number of nodes of each tier, and the stage; `figure` is the paper's.

    A layout with the stage None chooses between stages 2 and 3 by measured time.
    """

    figure: str
    name: str
    reliable: int
    transient: int
    stage: Stage | None

    @property
    def nodes(self) -> int:
        return self.reliable + self.transient

    @property
    def workers(self) -> int:
        """Return the number of working nodes."""
        return self.transient if self.stage == 3 else self.nodes

    @property
    def servers(self) -> int:
        """Return the number of serving nodes; there is one shard per server, so that all serve alike."""
        return (self.transient + 1) // 2 if self.stage in (2, 3, None) and self.transient else self.reliable

    @property
    def tiers(self) -> str:
        """Return the numbers of nodes as text."""
        return f"{self.reliable} + {self.transient}"


def traditional(n: int) -> TierLayout:
    """Return the layout of a parameter server without tiers: all nodes are reliable, work and serve."""
    return TierLayout("11-13", "traditional", n, 0, 1)


def tierings(n: int, figures: Collection[int] = PAPER_FIGURES) -> list[TierLayout]:
    """Return the layouts that some of Figs. 11-14 compare with the traditional one of `n` nodes (a multiple of 16).

    Fig. 14 is there with what a job chooses, too.
    A layout in two figures is returned once, for the first: Fig. 13's stage 2 of sixteen nodes is Fig. 12's.
    """
    few = n // 16
    layouts = [TierLayout("11", "stage 1", reliable, n - reliable, 1) for reliable in (few, 2 * few, 4 * few, 8 * few)]
    layouts += [TierLayout("12", "stage 2", few, n - few, 2)]
    if few > 1 or 12 not in figures:
        layouts += [TierLayout("13", "stage 2", 1, n - 1, 2)]
    layouts += [TierLayout("13", "stage 3", 1, n - 1, 3)]
    layouts += [TierLayout("14", f"stage {stage}", n // 2, n - n // 2, stage) for stage in (2, 3)]
    layouts += [TierLayout("14", "chosen", n // 2, n - n // 2, None)]
    return [layout for layout in layouts if int(layout.figure) in figures]


def scalings() -> list[TierLayout]:
    """Return the layouts of Fig. 15, the reference first."""
    layouts = [TierLayout("15", "traditional", 4, 0, 1), TierLayout("15", "stage 1", 4, 4, 1)]
    return layouts + [TierLayout("15", "stage 3", 1, n - 1, 3) for n in (16, 32, 64)]


def table_seconds(nodes: int) -> float:
    """Return a table time at which two cores can process all messages, nearly `nodes` squared per clock."""
    return 0.5 + nodes**2 / 1024
