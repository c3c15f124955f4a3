"""Reference to a checkpoint, as the controller and the nodes exchange it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

#: Number of complete checkpoints that are kept: an older one is used where a newer one turns out to be damaged.
KEPT = 3


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its last group, its name in the blob store, and the job's figures up to then.

    `summary` is the job's summary (losses, seconds, …, see `psengine.controller.status`); JSON-able. If the job has a
    driver with state, it holds that as `driver`, and as `n_updates` the number of tasks of the groups up to `group`.
    `partitions` are those whose states are in the checkpoint.
    """

    group: int
    name: str
    summary: Mapping[str, Any]
    partitions: tuple[int, ...] = ()

    @property
    def clock(self) -> int:
        """The number of clocks that are complete in it; a clock may have several groups."""
        return int(self.summary.get("clocks", self.group))

    def n_updates(self, n_partitions: int) -> int:
        """Return the number of tasks of the groups up to `group`; by default one for each partition and group."""
        return int(self.summary.get("n_updates", self.group * n_partitions))

    def for_nodes(self) -> Checkpoint:
        """Return what nodes need of it: without the figures of the job, which grow, and the state of its driver."""
        needed = {name: value for name, value in self.summary.items() if name == "n_updates"}
        return replace(self, summary=needed)


@dataclass(frozen=True)
class Checkpoints:
    """The complete checkpoints of a job, the newest first; `damaged`: a line on newer ones that cannot be used."""

    kept: tuple[Checkpoint, ...] = ()
    damaged: str = ""

    @property
    def newest(self) -> Checkpoint | None:
        """The newest one; None if there is none."""
        return self.kept[0] if self.kept else None
