"""Jobs on many nodes of one machine: a process, a network namespace and a link of a given rate each.

The nodes run `infra.nodes.main` and find each other as on bought machines: through a blob store, here a folder.
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

from proteus_spot.benchmarks.data_plane.nodes import Process
from proteus_spot.benchmarks.papers.many_nodes.fork_server import ForkRequest, arguments, run_node, serve_forks
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import Network, network
from proteus_spot.benchmarks.papers.many_nodes.sleeping_app import ROW
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.nodes.controller_client import NO_LOSSES, ControllerClient, wait_rendezvous
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.infra.tls.certificates import ensure_keys
from proteus_spot.infra.urls import file_url
from proteus_spot.psengine.config import JobConfig, Stage

#: Ratio of the tiers above which stages 2 and 3 are chosen where tiers are alike in size.
_ALIKE = 0.5
#: Maximum seconds until the controller or the nodes have started, or the shards are placed.
PATIENCE_S = 120.0
_POLL_S = 0.2
_CONTROLLER = "controller"
_MODULES = ("proteus_spot.benchmarks.papers.many_nodes.sleeping_app",)
#: Dask settings for sixty-four processes on two cores: less work when idle, and longer timeouts when each connects to
#: all others together.
_DASK = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "60s",
}


@dataclass(frozen=True)
class Workload:
    """Work of a job: `work_s` seconds of kernels per clock over all nodes, on a table of `table_bytes`."""

    table_bytes: int
    work_s: float
    n_partitions: int
    n_shards: int
    staleness: int = 0
    tells: bool = False
    #: Number of nodes that serve; None: one for each shard.
    n_servers: int | None = None

    def config(self, job: str, blobs: Blobs, clocks: int, reliable: int, stage: Stage | None) -> JobConfig:
        """Return the job's config, and write its input data; without a `stage`, 2 or 3 is chosen by measured time."""
        paths = JobPaths(job)
        for partition in range(self.n_partitions):
            blobs.write_npz(f"{paths.data}/{part_name(partition)}", {"x": np.zeros(1, np.float32)})
        blobs.write_npz(f"{paths.data}/{HELD_OUT}", {"x": np.zeros(1, np.float32)})
        return JobConfig(
            job_id=job,
            app="proteus_spot.benchmarks.papers.many_nodes.sleeping_app:Waiting",
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
            stage_2_above=1.0 if stage else _ALIKE,
            servers=self.n_servers or self.n_shards,
        )


@dataclass
class Places:
    """Namespaces, and the fork server that starts nodes in them."""

    network: Network
    folder: Path
    _fork_server: Process
    _jobs: int = 0

    @contextmanager
    def job(self) -> Iterator[RunningCluster]:
        """Start the controller of a new job; on exit end all of its processes."""
        self._jobs += 1
        running = RunningCluster(self, f"job-{self._jobs}", Blobs(file_url(self.folder / f"job-{self._jobs}")))
        try:
            running.meet()
            yield running
        finally:
            running.end()

    def fork(self, index: int, options: Sequence[str], log: Path, waits: bool) -> int:
        """Start a process of `infra.nodes.main` in namespace `index`; return its id. `waits`: until it gets `JOIN`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(temporary)}
        namespace = self.network.path(index)
        request = ForkRequest(run_node, list(options), str(log), environment, namespace=namespace, waits=waits)
        return int(self._fork_server.ask("fork", request))

    def ended(self, pids: Sequence[int]) -> list[int]:
        """Return the ids of forked processes that have ended."""
        return list(self._fork_server.ask("ended", list(pids)))


@contextmanager
def places(n: int, rate: int, folder: Path) -> Iterator[Places]:
    """Create `n` namespaces with links of `rate` bytes per second each way, and one more for a controller."""
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
        """The client of its controller."""
        assert self._client is not None, "call meet first"
        return self._client

    def meet(self) -> None:
        """Start the controller, in the last of the namespaces, and wait for it."""
        host = self.places.network.plan.address(self.places.network.plan.n - 1)
        ensure_keys(self.blobs, self.name, load_settings().model_copy(update={"node_host": host}))
        self._fork(_CONTROLLER, self.places.network.plan.n - 1, "reliable", "--controller")
        self._client = ControllerClient(wait_rendezvous(self.blobs.url, self.name, PATIENCE_S), blob_url=self.blobs.url)

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
        """Send a signal to nodes, one after the other."""
        for name in names:
            os.kill(self.pids[name], number)

    def until(self, done: Callable[[dict[str, Any]], bool], patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the controller's status once `done` holds.

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
                raise TimeoutError(f"the job timed out after {patience_s:g} s: {_short(status)}")
            clock.wait_until(clock.now_s() + _POLL_S)

    def end(self) -> None:
        """Kill every process; nothing of them is needed."""
        waited = set(self.pids.values())
        for pid in waited:
            _kill(pid)
        clock = SystemClock()
        until_s = clock.now_s() + PATIENCE_S
        while waited and clock.now_s() < until_s:
            waited -= set(self.places.ended(sorted(waited)))
            clock.wait_until(clock.now_s() + _POLL_S / 10)
        self.pids.clear()

    def log(self, name: str) -> Path:
        """Return the log file of a node."""
        return self.places.folder / self.name / "logs" / f"{name}.log"

    def _fork(self, name: str, index: int, tier: str, *more: str, waits: bool = False) -> None:
        host = self.places.network.plan.address(index)
        options = arguments(self.name, self.blobs.url, name, tier, host, *more)
        self.pids[name] = self.places.fork(index, options, self.log(name), waits)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended, and the fork server has its exit code


def _short(status: dict[str, Any]) -> str:
    states: dict[str, int] = {}
    for node in status["nodes"]:
        states[node["state"]] = states.get(node["state"], 0) + 1
    return f"{status['state']}, {status['reason'] or 'no reason given'}, clock {status['clock']}, nodes {states}"


def all_there(n: int) -> Callable[[dict[str, Any]], bool]:
    """Return a condition on the status: whether `n` nodes have joined."""
    return lambda status: sum(not node["gone"] for node in status["nodes"]) == n


def served_by(n: int, replicated: bool) -> Callable[[dict[str, Any]], bool]:
    """Return a condition on the status: whether `n` nodes serve all shards, and there are replicas or not."""
    return lambda status: (
        len({shard["node"] for shard in status["shards"]}) == n and (status["backup_clock"] is not None) == replicated
    )
