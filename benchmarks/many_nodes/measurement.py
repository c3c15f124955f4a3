"""One job on many nodes, measured: what its clocks took, and how busy processors and links were."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.many_nodes.cluster import Places, RunningCluster, Workload, all_there, served_by
from benchmarks.many_nodes.layouts import KERNEL, STALENESS, TABLE_BYTES, TierLayout

#: Of the machine's processors; above it they may be what is measured.
MOST_CPU = 0.70
#: With a clock of slack a long clock follows a short one: of an odd number of them the median is one kind's.
_WARM, _CLOCKS = 2, 10
#: Clocks of layouts that take many times as long.
_FEW_WARM, _FEW = 1, 2
#: Longer than any of these jobs takes.
HOURS_S = 7200.0


@dataclass(frozen=True)
class Measured:
    """What came of a layout.

    Attributes
    ----------
    seconds : of each measured clock.
    communicating : share of a clock in which the node that had the most kernels to run did not run any.
    cpu, ours : share of the machine's processors that was used, by all and by the nodes.
    link_bytes : the most that any node's link carried one way, a clock.
    """

    layout: TierLayout
    seconds: list[float]
    communicating: float
    cpu: float
    ours: float
    link_bytes: float

    @property
    def valid(self) -> bool:
        return self.cpu <= MOST_CPU

    @property
    def note(self) -> str:
        said = f"link {self.link_bytes / TABLE_BYTES:.1f} tables a clock, {self.communicating:.0%} of it not in kernels"
        busy = f"host's CPU {self.cpu:.0%} (nodes {self.ours:.0%})"
        return f"{said}; {busy}" + ("" if self.valid else f": INVALID, above {MOST_CPU:.0%}")


class Meter:
    """What the machine's processors and the nodes' links do from now on."""

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
    """Return what nodes' links have carried since they were made, both ways of each."""
    plan = running.places.network.plan
    counters = [Path(f"/sys/class/net/{plan.end(i)}/statistics") for i in range(nodes)]
    return [int((of / f"{way}_bytes").read_text()) for of in counters for way in ("rx", "tx")]


def load_for(layout: TierLayout, unit_s: float, table_bytes: int = TABLE_BYTES) -> Workload:
    """Return a job of the same work for every layout of so many nodes, a micro-task a worker and clock."""
    return Workload(table_bytes, KERNEL * unit_s * layout.nodes, layout.workers, layout.servers, STALENESS)


def measure(there: Places, layout: TierLayout, load: Workload, *, quick: bool = False) -> Measured:
    """Run a job in a layout, and return what its clocks took once it was in it; of few clocks if it is to be quick."""
    warm, clocks = (_FEW_WARM, _FEW) if quick else (_WARM, _CLOCKS)
    with there.job() as running:
        running.start(layout.reliable, layout.transient)
        running.until(all_there(layout.nodes))
        running.client.hold(0)  # until all are where they belong
        config = load.config(running.name, running.blobs, warm + clocks, layout.reliable, layout.stage)
        running.client.start(config.to_dict())
        running.until(served_by(layout.servers, kept=layout.stage in (2, 3)))
        running.client.hold(None)
        running.until(lambda status: status["clock"] >= warm, HOURS_S)
        meter = Meter(running, layout.nodes)
        running.until(lambda status: status["clock"] >= warm + clocks, HOURS_S)
        cpu, ours, most_bytes = meter.read()
        result = finished(running, load, warm + clocks)
    seconds = result["seconds_by_clock"][warm:]
    per_clock_s = load.work_s / load.n_partitions
    return Measured(layout, seconds, 1 - per_clock_s / median(seconds), cpu, ours, most_bytes / clocks)


def finished(running: RunningCluster, load: Workload, clocks: int) -> dict[str, Any]:
    """Return the job's result, once it has ended; the model must hold each micro-task once."""
    result: dict[str, Any] = running.until(lambda status: status["state"] == "finished", HOURS_S)["result"]
    wanted = float(clocks * load.n_partitions)
    if (result["metrics"]["least"], result["metrics"]["greatest"]) != (wanted, wanted):
        raise RuntimeError(f"{wanted:g} micro-tasks were done, and the model holds {result['metrics']}")
    return result
