"""A private Prefect server for a local run."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import httpx

from proteus_spot.infra.child_process import Child
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.files import write_whole
from proteus_spot.infra.processes.surroundings import python_module

#: Turns off Prefect's analytics, promotions, prompts and most of its console log.
QUIET: Mapping[str, str] = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_CLI_PROMPT": "false",
    "DO_NOT_TRACK": "1",
    # Logs of runs go to the API and so to the UI; the terminal shows the job's progress.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "ERROR",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "proteus_spot.tasks",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
}


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kept_port(file: Path, given: int | None = None) -> int:
    """Return the port that is given, else the one that the file names if it is free now, else a free one; keep it."""
    port = given
    if port is None and file.is_file():
        text = file.read_text().strip()
        port = int(text) if text.isdecimal() and int(text) < 2**16 and is_free(int(text)) else None
    port = free_port() if port is None else port
    write_whole(file, f"{port}\n".encode())
    return port


def is_free(port: int) -> bool:
    """Return whether a TCP port of this machine can be listened on now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def basic_auth(auth: str) -> httpx.BasicAuth | None:
    """Return how httpx sends ``user:password``; None for an empty text."""
    user, _, password = auth.partition(":")
    return httpx.BasicAuth(user, password) if auth else None


class LocalPrefect:
    """`prefect server start` as a child process, with its state in `home`.

    Parameters
    ----------
    home : directory of the server's state.
    log : file that receives its output.
    port : TCP port to listen on; None takes a free one.
    auth : ``user:password`` that the server wants from every client; empty: it wants none.
    """

    def __init__(self, home: Path, log: Path, port: int | None = None, auth: str = "") -> None:
        self._port = free_port() if port is None else port
        self.api_url = f"http://127.0.0.1:{self._port}/api"
        self.ui_url = f"http://127.0.0.1:{self._port}"
        self.env = {"PREFECT_HOME": str(home), "PREFECT_API_URL": self.api_url, **QUIET}
        self.auth = auth
        if auth:
            self.env["PREFECT_API_AUTH_STRING"] = auth
        command = python_module("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self._port))
        # The environment may configure a server of the user; this one shares nothing with it.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        server = {
            "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
            **({"PREFECT_SERVER_API_AUTH_STRING": auth} if auth else {}),
        }
        self._child = Child(command, log, {**inherited, **self.env, **server})

    def start(self) -> None:
        """Start the server without waiting for it."""
        self._child.start()

    def wait_ready(self, timeout_s: float = 300.0) -> None:
        """Wait until the server answers.

        Raises
        ------
        ProteusError
            If the server ends, or does not answer in time; with the end of its log.
        """
        clock = SystemClock()
        deadline_s = clock.now_s() + timeout_s
        with httpx.Client(base_url=self.api_url, timeout=2.0) as api:  # one: each reads the machine's certificates
            self._child.check()
            while not self._answers(api):
                if clock.now_s() > deadline_s:
                    late = f"the Prefect server did not answer within {timeout_s:.0f} s"
                    raise ProteusError(f"{late}: {self._child.tail()}")
                clock.wait_until(clock.now_s() + 0.1)
                self._child.check()

    def _answers(self, api: httpx.Client) -> bool:
        try:
            return api.get("/health").is_success
        except httpx.HTTPError:
            return False

    def mark_unfinished_crashed(self) -> None:
        """Mark unfinished flow runs of an earlier server as crashed; their processes have ended."""
        under_way = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}}
        crashed = {"type": "CRASHED", "name": "Crashed", "message": "its process ended; the job continues in a new run"}
        with httpx.Client(base_url=self.api_url, timeout=10.0, auth=basic_auth(self.auth)) as api:
            while runs := api.post("/flow_runs/filter", json=under_way).raise_for_status().json():
                for run in runs:
                    state = {"state": crashed, "force": True}
                    api.post(f"/flow_runs/{run['id']}/set_state", json=state).raise_for_status()

    def check(self) -> None:
        """Raise `ProteusError` with the end of its log if the server has ended."""
        self._child.check()

    def stop(self) -> None:
        """End the server."""
        self._child.stop()
