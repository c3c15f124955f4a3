"""The nodes of one job as local processes around one blob store, without a market.

They run `infra.nodes.main`, as a bought machine does, but are child processes of this one and end with it.
"""

import os
import shutil
from pathlib import Path

from proteus_spot.infra.child_process import Child, stop_together
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable, wait_rendezvous
from proteus_spot.infra.open_close import ClosedAtEnd
from proteus_spot.infra.processes.surroundings import python_module
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.tls.job_keys import uses_tls

CONTROLLER = "controller"
_HOST = "127.0.0.1"
#: Timeouts in real seconds for the start of the controller, whose end is seen at once, and for a call to it.
_STARTS_S = 300.0
_CALL_S = 5.0
_MEET_S = 1.0
_LOOK_S = 0.05
#: Real seconds from SIGTERM to SIGKILL.
_GRACE_S = 2.0
#: Real seconds that the processes of a killed command may take to end.
_LINGER_S = 5.0
_ASK_S = 0.5


class LocalNodes(ClosedAtEnd):
    """A context manager that ends every process it started.

    Start nodes from a thread that lives as long as they should (see `infra.child_process.Child`).

    Parameters
    ----------
    directory : receives one log per node, ``logs/NAME.log``, and the processes' temporary files.
    blobs : the store through which they meet, with their input and state.
    with_dashboard : whether the controller serves Dask's dashboard.

    Attributes
    ----------
    dashboard : str or None
        URL of the dashboard, set by `meet`.
    """

    def __init__(self, directory: Path, job_id: str, blobs: Blobs, with_dashboard: bool = False) -> None:
        self._directory, self._job_id, self._blobs = directory, job_id, blobs
        self._with_dashboard = with_dashboard
        self.dashboard: str | None = None
        self._scratch = directory / "tmp"
        self._children: dict[str, Child] = {}
        self._leaving: dict[str, Child] = {}

    def meet(self) -> ControllerClient:
        """Start the controller and return its client.

        Raises
        ------
        InputError
            If another process runs a controller of this job.
        ProteusError
            If the controller ends, or does not answer in time.
        """
        self._check_alone()
        self._blobs.remove(JobPaths(self._job_id).rendezvous)  # nodes would look for an earlier controller
        if uses_tls(_HOST, load_settings().tls):
            from proteus_spot.infra.tls.certificates import ensure_keys  # cryptography takes a tenth of a second

            ensure_keys(self._blobs, self._job_id, load_settings().model_copy(update={"node_host": _HOST}))
        self._spawn(CONTROLLER, "reliable", "--controller", *(["--dashboard"] if self._with_dashboard else []))
        clock = SystemClock()
        until_s = clock.now_s() + _STARTS_S
        while True:
            try:
                client = ControllerClient(
                    wait_rendezvous(self._blobs.url, self._job_id, _MEET_S), _CALL_S, self._blobs.url
                )
            except ControllerUnreachable as error:
                process = self._children[CONTROLLER]
                process.check()
                if clock.now_s() > until_s:
                    raise ControllerUnreachable(
                        f"job {self._job_id}: its controller did not start within {_STARTS_S:g} s; "
                        f"its console: {process.log}"
                    ) from error
            else:
                self.dashboard = self._blobs.read_json(JobPaths(self._job_id).rendezvous).get("dashboard")
                return client

    def start(self, name: str, tier: str, threads: int) -> None:
        """Start a node; a leaving one of the same name is killed first."""
        leaving = self._leaving.pop(name, None)
        if leaving is not None:
            leaving.kill()
        self._spawn(name, tier, "--threads", str(threads), "--no-notices")

    def freeze(self, name: str) -> None:
        """Suspend a node's process (SIGSTOP); `kill` it soon, for until then it cannot end with this process."""
        if name in self._children:
            self._children[name].freeze()

    def kill(self, name: str) -> None:
        """Kill a node, as the market does; a node that has ended already is not an error."""
        child = self._children.pop(name, None) or self._leaving.pop(name, None)
        if child is not None:
            child.kill()

    def let_go(self, name: str) -> None:
        """Send SIGTERM to a node without waiting for its end."""
        child = self._children.pop(name, None)
        if child is not None:
            child.terminate()
            self._leaving[name] = child

    @property
    def running(self) -> frozenset[str]:
        """The nodes that were started and neither killed nor let go."""
        return frozenset(self._children)

    @property
    def process_groups(self) -> dict[str, int]:
        """The id of the process group of each running node."""
        return {name: child.pid for name, child in self._children.items() if not child.ended}

    def ended(self) -> dict[str, str]:
        """Return the nodes that have exited since the last call, each with the end of its log."""
        names = [name for name, child in self._children.items() if child.ended]
        return {name: self._children.pop(name).tail() for name in names}

    def close(self, told: bool = False) -> None:
        """End every process, by SIGTERM and then SIGKILL, and remove their temporary files.

        `told`: they have been asked to end by other means, and get `_GRACE_S` seconds before SIGTERM.
        """
        children = [*self._children.values(), *self._leaving.values()]
        clock = SystemClock()
        until_s = clock.now_s() + _GRACE_S
        while told and not all(child.ended for child in children) and clock.now_s() < until_s:
            clock.wait_until(clock.now_s() + _LOOK_S)
        stop_together(children, _GRACE_S)
        self._children.clear()
        self._leaving.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _check_alone(self) -> None:
        """Refuse to start a second controller of the job; one whose command was killed ends soon, so wait for it."""
        paths, clock = JobPaths(self._job_id), SystemClock()
        until_s = clock.now_s() + _LINGER_S
        while self._blobs.exists(paths.rendezvous):
            address = str(self._blobs.read_json(paths.rendezvous).get("control"))
            try:
                if ControllerClient(address, _ASK_S, self._blobs.url).status()["job_id"] not in (None, self._job_id):
                    return
            except ControllerUnreachable:
                return
            if clock.now_s() > until_s:
                raise InputError(
                    f"job {self._job_id}: is being trained by another process (a controller at {address} answers); "
                    "wait for its end, or give another --job"
                )
            clock.wait_until(clock.now_s() + _ASK_S)

    def _spawn(self, name: str, tier: str, *options: str) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        if name in self._children:
            raise ProteusError(f"node {name} exists already")
        command = python_module("proteus_spot.infra.nodes.main", "--job", self._job_id, "--blob", self._blobs.url)
        command += ["--name", name, "--tier", tier, "--host", _HOST, *options]
        environment = {**os.environ, "TMPDIR": str(self._scratch)}
        child = Child(command, self._directory / "logs" / f"{name}.log", environment)
        self._children[name] = child  # before the start, so that a signal in between leaves no unknown process
        child.start()
