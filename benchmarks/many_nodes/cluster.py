"""Jobs on many nodes of one machine: a process and a network namespace each, a link of a given rate between them.

The nodes are `infra.nodes.main`, which meet as on machines that were bought: through a blob store, here a folder.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data_plane.nodes import Process
from benchmarks.many_nodes.fork_server import ForkRequest, arguments, run_node, serve_forks
from benchmarks.many_nodes.network_namespaces import Network, network
from benchmarks.many_nodes.sleeping_app import ROW
from infra.clock import SystemClock
from infra.nodes.controller_client import NO_LOSSES, ControllerClient, wait_rendezvous
from infra.storage.blobs import Blobs
from infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from infra.urls import file_url
from psengine.config import JobConfig, Stage

#: Seconds: for a controller or for nodes to be there, for shards to be where they belong.
PATIENCE_S = 120.0
_LOOK_S = 0.2
_CONTROLLER = "controller"
_MODULES = ("benchmarks.many_nodes.sleeping_app",)
#: What sixty-four processes on two cores want otherwise than as many machines: to do less when idle, and more patience
#: where each of them connects to all the others at once.
_DASK = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "60s",
}


@dataclass(frozen=True)
class Workload:
    """What a job does: `work_s` seconds of kernels a clock over all nodes, on a table of `table_bytes`."""

    table_bytes: int
    work_s: float
    n_partitions: int
    n_shards: int
    staleness: int = 0
    tells: bool = False

    def config(self, job: str, blobs: Blobs, clocks: int, reliable: int, stage: Stage | None) -> JobConfig:
        """Return the job, and write what its nodes load."""
        paths = JobPaths(job)
        for partition in range(self.n_partitions):
            blobs.write_npz(f"{paths.data}/{part_name(partition)}", {"x": np.zeros(1, np.float32)})
        blobs.write_npz(f"{paths.data}/{HELD_OUT}", {"x": np.zeros(1, np.float32)})
        return JobConfig(
            job_id=job,
            app="benchmarks.many_nodes.sleeping_app:Waiting",
            app_params={
                "table_bytes": self.table_bytes // ROW * ROW,
                "seconds": self.work_s / self.n_partitions,
                "tells": self.tells,
            },
            data_url=blobs.url_of(paths.data),
            n_partitions=self.n_partitions,
            n_shards=self.n_shards,
            staleness=self.staleness,
            clocks=clocks,
            n_reliable=reliable,
            start_patience_s=PATIENCE_S,
            stage=stage,
        )


@dataclass
class Places:
    """Namespaces, and the nursery that puts nodes into them."""

    network: Network
    folder: Path
    _nursery: Process
    _jobs: int = 0

    @contextmanager
    def job(self) -> Iterator[RunningCluster]:
        """Start the controller of a new job; end all of its processes in the end."""
        self._jobs += 1
        running = RunningCluster(self, f"job-{self._jobs}", Blobs(file_url(self.folder / f"job-{self._jobs}")))
        try:
            running.meet()
            yield running
        finally:
            running.end()

    def fork(self, place: int, told: Sequence[str], log: Path, waits: bool) -> int:
        """Start a process of `infra.nodes.main` in namespace `place`, one that waits for `JOIN` if it is to; return its id."""
        log.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(temporary)}
        namespace = self.network.path(place)
        birth = ForkRequest(run_node, list(told), str(log), environment, namespace=namespace, waits=waits)
        return int(self._nursery.ask("fork", birth))

    def ended(self, pids: Sequence[int]) -> list[int]:
        """Return those of our processes that have ended."""
        return list(self._nursery.ask("ended", list(pids)))


@contextmanager
def places(n: int, rate: int, folder: Path) -> Iterator[Places]:
    """Make `n` namespaces with links of `rate` bytes a second each way, and one more, for a controller."""
    with network(n + 1, rate) as net, Process(serve_forks, _MODULES, _DASK) as ready:
        ready.ask()
        yield Places(net, folder, ready)


@dataclass
class RunningCluster:
    """A job's processes."""

    places: Places
    name: str
    blobs: Blobs
    pids: dict[str, int] = field(default_factory=dict)
    _client: ControllerClient | None = None

    @property
    def client(self) -> ControllerClient:
        """The way to its controller."""
        assert self._client is not None, "met first"
        return self._client

    def meet(self) -> None:
        """Start the controller, in the last of the namespaces, and wait for it."""
        self._fork(_CONTROLLER, self.places.network.plan.n - 1, "reliable", "--controller")
        self._client = ControllerClient(wait_rendezvous(self.blobs.url, self.name, PATIENCE_S))

    def start(self, reliable: int, transient: int, *, join: bool = True) -> list[str]:
        """Start nodes in the namespaces from 0 on, the reliable ones first; return the names of the transient ones.

        Without `join` the transient ones are processes, but not yet nodes, until they are signalled `JOIN`.
        """
        tiers = ["reliable"] * reliable + ["transient"] * transient
        names = [f"{tier[0]}{i}" for i, tier in enumerate(tiers)]
        for i, (name, tier) in enumerate(zip(names, tiers, strict=True)):
            if name not in self.pids:
                self._fork(name, i, tier, waits=tier == "transient" and not join)
        return names[reliable:]

    def signal(self, names: Sequence[str], number: signal.Signals) -> None:
        """Signal nodes, all in a row."""
        for name in names:
            os.kill(self.pids[name], number)

    def until(self, done: Callable[[dict[str, Any]], bool], patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the controller's status as soon as `done` says so.

        Raises
        ------
        RuntimeError
            If the job fails.
        TimeoutError
        """
        clock = SystemClock()
        deadline_s = clock.now_s() + patience_s
        while True:
            status = self.client.status(NO_LOSSES)
            if done(status):
                return status
            if status["state"] == "failed":
                raise RuntimeError(f"the job failed: {status['reason']}")
            if clock.now_s() > deadline_s:
                raise TimeoutError(f"the job did not get there in {patience_s:g} s: {_short(status)}")
            clock.wait_until(clock.now_s() + _LOOK_S)

    def end(self) -> None:
        """End every process by force: nothing that they have is wanted any more."""
        waited = set(self.pids.values())
        for pid in waited:
            _kill(pid)
        clock = SystemClock()
        until_s = clock.now_s() + PATIENCE_S
        while waited and clock.now_s() < until_s:
            waited -= set(self.places.ended(sorted(waited)))
            clock.wait_until(clock.now_s() + _LOOK_S / 10)
        self.pids.clear()

    def log(self, name: str) -> Path:
        """Return the file that takes what a node says."""
        return self.places.folder / self.name / "logs" / f"{name}.log"

    def _fork(self, name: str, place: int, tier: str, *more: str, waits: bool = False) -> None:
        host = self.places.network.plan.address(place)
        told = arguments(self.name, self.blobs.url, name, tier, host, *more)
        self.pids[name] = self.places.fork(place, told, self.log(name), waits)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself, and the nursery has seen it


def _short(status: dict[str, Any]) -> str:
    states: dict[str, int] = {}
    for node in status["nodes"]:
        states[node["state"]] = states.get(node["state"], 0) + 1
    return f"{status['state']}, {status['reason'] or 'no reason given'}, clock {status['clock']}, nodes {states}"


def all_there(n: int) -> Callable[[dict[str, Any]], bool]:
    """Return whether `n` nodes have joined, as a condition on the status."""
    return lambda status: sum(not node["gone"] for node in status["nodes"]) == n


def served_by(n: int, kept: bool) -> Callable[[dict[str, Any]], bool]:
    """Return whether `n` nodes serve all shards, and copies are kept if they are to be, as a condition on the status."""
    return lambda status: (
        len({shard["node"] for shard in status["shards"]}) == n and (status["backup_clock"] is not None) == kept
    )
