"""Measurement of one job on many nodes: seconds of its clocks, load of processors and links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from proteus_spot.benchmarks.papers.many_nodes.cluster import Places, RunningCluster, Workload, all_there, served_by
from proteus_spot.benchmarks.papers.many_nodes.layouts import KERNEL, STALENESS, TABLE_BYTES, TierLayout
from proteus_spot.infra.nodes.controller_client import NO_LOSSES
from proteus_spot.psengine.tiers.measured_stage import WINDOW

#: Maximum load of the machine's processors; above it they may limit the result.
MOST_CPU = 0.70
#: Number of clocks before and during the measurement. It is even: with a clock of slack, long and short clocks
#: alternate, and the median of an odd number would be of one kind.
_WARM, _CLOCKS = 2, 10
#: The same for layouts that take many times as long.
_FEW_WARM, _FEW = 1, 2
#: Clocks before the measurement in which a job chooses its stage.
_CHOOSING = 2 * (2 * WINDOW + 2)
#: Timeout in seconds, longer than any of these jobs takes.
HOURS_S = 7200.0


@dataclass(frozen=True)
class Measured:
    """Result of a layout.

    Attributes
    ----------
    seconds : seconds of each measured clock.
    communicating : share of a clock in which the node with the most kernels did not run any.
    cpu, ours : share of the machine's processors used by all processes and by the nodes.
    link_bytes : maximum bytes per clock that a node's link carried in one direction.
    chosen : stage at the end, and whether pushes used the tree; empty where the layout fixes them.
    """

    layout: TierLayout
    seconds: list[float]
    communicating: float
    cpu: float
    ours: float
    link_bytes: float
    chosen: str = ""

    @property
    def valid(self) -> bool:
        return self.cpu <= MOST_CPU

    @property
    def note(self) -> str:
        links = (
            f"link {self.link_bytes / TABLE_BYTES:.1f} tables a clock, {self.communicating:.0%} of it not in kernels"
        )
        busy = f"host's CPU {self.cpu:.0%} (nodes {self.ours:.0%})"
        return f"{self.chosen}{links}; {busy}" + ("" if self.valid else f": INVALID, above {MOST_CPU:.0%}")


class Meter:
    """Load of the machine's processors and the nodes' links since its creation."""

    def __init__(self, running: RunningCluster, nodes: int) -> None:
        self._running, self._nodes = running, nodes
        self._processes = [psutil.Process(pid) for pid in running.pids.values()]
        self._before = self._now()

    def _now(self) -> tuple[float, float, float, list[int]]:
        times = psutil.cpu_times()
        ours = sum(sum(process.cpu_times()[:2]) for process in self._processes)
        return sum(times), times.idle + times.iowait, ours, link_bytes(self._running, self._nodes)

    def read(self) -> tuple[float, float, int]:
        """Return the shares of the processors, used by all and by the nodes, and the most bytes on a link one way."""
        (total, idle, ours, links), (total_0, idle_0, ours_0, links_0) = self._now(), self._before
        span = max(total - total_0, 1e-9)
        busiest = max(now - before for now, before in zip(links, links_0, strict=True))
        return 1 - (idle - idle_0) / span, (ours - ours_0) / span, busiest


def link_bytes(running: RunningCluster, nodes: int) -> list[int]:
    """Return the bytes that nodes' links have carried since their creation, in each direction."""
    plan = running.places.network.plan
    folders = [Path(f"/sys/class/net/{plan.end(i)}/statistics") for i in range(nodes)]
    return [int((folder / f"{way}_bytes").read_text()) for folder in folders for way in ("rx", "tx")]


def load_for(layout: TierLayout, unit_s: float, table_bytes: int = TABLE_BYTES) -> Workload:
    """Return a workload that is the same for every layout of as many nodes: one micro-task per worker and clock."""
    return Workload(table_bytes, KERNEL * unit_s * layout.nodes, layout.workers, layout.servers, STALENESS)


def measure(cluster: Places, layout: TierLayout, load: Workload, *, quick: bool = False) -> Measured:
    """Run a job in a layout and measure its clocks once the layout is reached; `quick`: only a few clocks."""
    warm, clocks = (_FEW_WARM, _FEW) if quick else (_WARM, _CLOCKS)
    chooses = layout.stage is None
    warm = _CHOOSING if chooses else warm
    with cluster.job() as running:
        running.start(layout.reliable, layout.transient)
        running.until(all_there(layout.nodes))
        running.client.hold(0)  # until all shards are placed
        config = load.config(running.name, running.blobs, warm + clocks, layout.reliable, layout.stage)
        running.client.start(config.to_dict())
        running.until(served_by(layout.servers, replicated=layout.stage != 1))
        running.client.hold(None)
        running.until(lambda status: status["clock"] >= warm, HOURS_S)
        meter = Meter(running, layout.nodes)
        running.until(lambda status: status["clock"] >= warm + clocks, HOURS_S)
        cpu, ours, most_bytes = meter.read()
        status = running.client.status(NO_LOSSES)
        chosen = f"it chose stage {status['stage']}; " if chooses else ""
        result = finished(running, load, warm + clocks)
    seconds = result["seconds_by_clock"][warm:]
    per_clock_s = load.work_s / load.n_partitions
    return Measured(layout, seconds, 1 - per_clock_s / median(seconds), cpu, ours, most_bytes / clocks, chosen)


def finished(running: RunningCluster, load: Workload, clocks: int) -> dict[str, Any]:
    """Wait for the end of the job and return its result; raise if the model does not hold each micro-task once."""
    result: dict[str, Any] = running.until(lambda status: status["state"] == "finished", HOURS_S)["result"]
    wanted = float(clocks * load.n_partitions)
    if (result["metrics"]["least"], result["metrics"]["greatest"]) != (wanted, wanted):
        raise RuntimeError(f"{wanted:g} micro-tasks were done, and the model holds {result['metrics']}")
    return result
