"""A local cluster of real node processes for tests: start, kill, watch the status, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np
import psutil

from proteus_spot.benchmarks.papers.many_nodes import fork_server as nursery
from proteus_spot.infra.child_process import with_parent_death_signal
from proteus_spot.infra.nodes.controller_client import ControllerClient, wait_rendezvous
from proteus_spot.infra.open_close import OpenedAtStart
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.rpc.transport import endpoint_and_mark
from tests.support import faulty_node as troubled_node
from tests.support.fork_server import CAN_FORK, Forked
from tests.support.kill_at_moment import KillPoint, Moment
from tests.support.timeouts import PATIENCE

DEADLINE_S = 60.0 * PATIENCE


class LocalCluster(OpenedAtStart):
    """Nodes of one job as processes on this machine; a context manager that ends them, as the parent's death does.

    `path` takes the blobs and one log a process; the environment's TMPDIR is put there too. `troubled`: links between
    the processes can be cut for a while, and processes die at a moment that is told. `anew`: processes begin as on a
    machine that was bought, with `python -m proteus_spot.infra.nodes.main`, and are not forked from one that has
    imported everything. `python`: the interpreter of another environment, in which Proteus is installed; processes
    begin anew in it.
    """

    def __init__(
        self,
        path: Path,
        job_id: str = "job",
        troubled: bool = False,
        anew: bool = not CAN_FORK,
        python: Path | None = None,
    ) -> None:
        self._troubles, self._troubled, self._anew = path / "troubles", troubled, anew or python is not None
        self._python = python
        self.path, self.job_id = path, job_id
        self.blob_url = (path / "blobs").as_uri()
        self.blobs = Blobs(self.blob_url)
        self.processes: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self.client: ControllerClient

    def open(self) -> None:
        """Start the controller."""
        self.start_controller()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for log in sorted(self.path.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
        super().__exit__(kind, error, trace)

    def start_controller(self) -> None:
        self._spawn("controller", "reliable", "--controller")
        self.client = ControllerClient(wait_rendezvous(self.blob_url, self.job_id, DEADLINE_S), 10.0, self.blob_url)

    def start_node(self, name: str, tier: str = "transient", threads: int = 1, metadata_url: str | None = None) -> None:
        """Start a node; it looks for notices, ten times a second, only where a metadata service is given."""
        notices = ["--no-notices"] if metadata_url is None else ["--poll-s", "0.1"]
        env = {} if metadata_url is None else {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url}
        self._spawn(name, tier, "--threads", str(threads), *notices, env=env)

    def start_nodes(self, reliable: int, transient: int) -> None:
        """Start r1, r2, … and t1, t2, …, and wait until they have joined."""
        for name in [f"r{i + 1}" for i in range(reliable)]:
            self.start_node(name, "reliable")
        for name in [f"t{i + 1}" for i in range(transient)]:
            self.start_node(name)
        self.wait(lambda s: len(s["nodes"]) == reliable + transient, "all nodes to join")

    def kill(self, name: str) -> None:
        """SIGKILL, as an eviction without notice is."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def cut(self, *ways: tuple[str, str]) -> None:
        """Let nothing pass that the first of two processes begins with the second, from now until the next call.

        Processes are named as in the status, and "controller".
        """
        nodes = self.client.status()["nodes"] if ways else []
        at = {node["name"]: endpoint_and_mark(node["address"])[0] for node in nodes}
        at["controller"] = self.blobs.read_json(JobPaths(self.job_id).rendezvous)["address"]
        written = self._troubles / "cuts.new"
        written.write_text("".join(f"{one} {at[other]}\n" for one, other in ways))
        written.replace(self._troubles / "cuts")

    def doom(self, moment: Moment, op: str, victim: str | None = None) -> None:
        """SIGKILL a process at a moment of a call: of the one that is named, or of whoever is at that moment first."""
        KillPoint(moment, op, 0 if victim is None else self.processes[victim].pid).write(self._troubles / "doom")

    def freeze(self, moment: Moment, op: str) -> None:
        """SIGSTOP whoever is at a moment of a call first."""
        KillPoint(moment, op, stops=True).write(self._troubles / "doom")

    def plant(self, at: str | None) -> None:
        """Have processes that start from now on raise at a place of the program (`faulty_node.PLACES`); None: none."""
        file = self._troubles / "raises"
        self._troubles.mkdir(parents=True, exist_ok=True)
        file.write_text(at) if at else file.unlink(missing_ok=True)

    def wait_frozen(self) -> str:
        """Wait until a process has been stopped by its doom, and return its name."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for name, process in self.processes.items():
                if psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                    return name
            time.sleep(0.005)
        raise AssertionError("the moment never came")

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        os.killpg(self.processes[name].pid, signal.SIGCONT)

    def wait_killed(self) -> str:
        """Wait until a process has been killed by its doom, and return its name; it is no longer one of ours."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for name, process in self.processes.items():
                if process.poll() == -signal.SIGKILL:
                    del self.processes[name]
                    return name
            time.sleep(0.005)
        raise AssertionError("the moment never came")

    def terminate(self, name: str) -> int:
        """SIGTERM; return the exit code."""
        process = self.processes.pop(name)
        process.terminate()
        return process.wait(DEADLINE_S)

    def wait(
        self, until: Callable[[dict[str, Any]], bool], what: str, deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """Poll the status until `until` holds and return it."""
        end = time.monotonic() + deadline_s
        while True:
            status = self.client.status()
            if until(status):
                return status
            if status["state"] == "failed" or time.monotonic() > end:
                raise AssertionError(f"waited for {what}; status: {status}")
            time.sleep(0.005)

    def wait_state(self, *states: str) -> dict[str, Any]:
        return self.wait(lambda s: s["state"] in states, f"state {states}")

    def model(self) -> dict[str, np.ndarray]:
        files = self.blobs.read_set(JobPaths(self.job_id).model)
        with tempfile.TemporaryFile() as file:
            file.write(files["model.npz"])
            file.seek(0)
            with np.load(file) as arrays:
                return dict(arrays)

    def shutdown(self) -> dict[str, int]:
        """Ask the controller to close everything; return the exit codes."""
        self.client.shutdown()
        codes = {name: process.wait(DEADLINE_S) for name, process in self.processes.items()}
        self.processes.clear()
        return codes

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def _spawn(self, name: str, tier: str, *more: str, env: Mapping[str, str] = MappingProxyType({})) -> None:
        scratch = self.path / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        self._troubles.mkdir(parents=True, exist_ok=True)
        told = ["--job", self.job_id, "--blob", self.blob_url, "--name", name, "--tier", tier, "--host", "127.0.0.1"]
        log, environment = self.path / f"{name}.log", os.environ | {"TMPDIR": str(scratch)} | dict(env)
        begin = self._begin if self._anew else self._fork
        self.processes[name] = begin([*told, *more], log, environment)

    def _fork(self, options: list[str], log: Path, environment: Mapping[str, str]) -> Forked:
        if self._troubled:
            options = [str(self._troubles), *options]
            return Forked(troubled_node.main, options, log, environment, self.path, signal.SIGKILL)
        return Forked(nursery.run_node, options, log, environment, self.path, signal.SIGTERM)

    def _begin(self, options: list[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        program = (
            ["tests.support.faulty_node", str(self._troubles)] if self._troubled else ["proteus_spot.infra.nodes.main"]
        )
        with log.open("ab") as out:
            return subprocess.Popen(
                with_parent_death_signal([str(self._python or sys.executable), "-m", *program, *options]),
                cwd=self.path if self._python else None,  # where the installed packages are found, not these sources
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=dict(environment),
            )


def write_data(cluster: LocalCluster, partitions: int, x: np.ndarray, y: np.ndarray, share: float = 0.8) -> str:
    """Write x, y as partitions and a held-out rest; return the data URL."""
    folder = JobPaths(cluster.job_id).data
    cut = int(len(y) * share)
    for p in range(partitions):
        part = {"x": x[:cut][p::partitions].astype(np.float32), "y": y[:cut][p::partitions].astype(np.int32)}
        cluster.blobs.write_npz(f"{folder}/{part_name(p)}", part)
    cluster.blobs.write_npz(f"{folder}/{HELD_OUT}", {"x": x[cut:].astype(np.float32), "y": y[cut:].astype(np.int32)})
    return cluster.blobs.url_of(folder)


def digits(cluster: LocalCluster, partitions: int) -> tuple[str, dict[str, Any]]:
    """Write scikit-learn's digits; return the data URL and the sizes that `mlr` wants to know."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    url = write_data(cluster, partitions, x[order] / 16.0, y[order])
    return url, {"n_inputs": 64, "n_classes": 10, "n_examples": int(len(y) * 0.8)}


def digits_job(
    cluster: LocalCluster, *, features: int, app_params: Mapping[str, Any] = MappingProxyType({}), **config: Any
) -> JobConfig:
    """Return a job on digits whose clocks last as `features` says."""
    partitions = config.setdefault("n_partitions", 12)
    url, sizes = digits(cluster, partitions)
    params = sizes | {"features": features, "gamma": 0.05, "step": 20.0} | dict(app_params)
    return JobConfig(job_id=cluster.job_id, app="mlr", app_params=params, data_url=url, **config)
