"""The deployments of prefect.yaml on a local server, and the process worker that runs them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from proteus_spot.infra.child_process import Child
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.local_market.prefect_server import basic_auth
from proteus_spot.infra.open_close import OpenedAtStart
from proteus_spot.infra.processes.surroundings import python_module

#: The work pool that prefect.yaml names.
POOL = "proteus"
#: Real seconds for the worker to make the pool, and for the deployments to be registered: long, as a process that ends
#: is seen at once, and a busy machine is slow.
_STARTS_S = 300.0
_DEPLOYS_S = 300.0
_LOOK_S = 0.1
_CALL_S = 10.0


class LocalDeployments(OpenedAtStart):
    """A worker and the deployments of prefect.yaml, whose schedules and triggers are paused.

    Prefect's schedules run on wall time. Where market time is faster, the process that keeps it calls these flows.

    Parameters
    ----------
    api_url : the local server, which must answer.
    directory : receives the logs of worker and registration.
    environment : the complete environment of the worker, and so of its flows.
    auth : ``user:password`` that the server wants; empty: it wants none.

    Raises
    ------
    InputError
        If prefect.yaml is not beside the packages, because Proteus was not installed from a clone.
    """

    def __init__(self, api_url: str, directory: Path, environment: Mapping[str, str], auth: str = "") -> None:
        self._api_url, self._auth = api_url, auth
        self._logs = directory / "logs"
        # The worker looks for work every second, and its flows run where they were deployed.
        self._environment = {**environment, "PREFECT_WORKER_QUERY_SECONDS": "1", "NO_COLOR": "1"}
        self._repository = repository()
        self._worker: Child | None = None
        self._registration: Child | None = None

    def open(self) -> None:
        """Start the worker, register the deployments and pause their schedules and triggers."""
        self._worker = self._start("worker", "worker", "start", "--pool", POOL, "--type", "process", "--name", "local")
        with httpx.Client(base_url=self._api_url, timeout=_CALL_S, auth=basic_auth(self._auth)) as api:
            self._await_pool(api)
            self._register()
            _pause(api)

    def close(self) -> None:
        """End the worker and the flows that it runs."""
        for child in (self._registration, self._worker):
            if child is not None:
                child.stop(grace_s=0.5)  # a flow may be killed at any line

    def check(self) -> None:
        """Raise `ProteusError` with the end of its log if the worker has ended."""
        if self._worker is not None:
            self._worker.check()

    def _start(self, name: str, *arguments: str) -> Child:
        command = python_module("prefect", "--no-prompt", *arguments)
        return Child(command, self._logs / f"{name}.log", self._environment, self._repository).start()

    def _await_pool(self, api: httpx.Client) -> None:
        """Wait for the pool, which the worker makes with the template of its type."""
        clock = SystemClock()
        until_s = clock.now_s() + _STARTS_S
        while api.get(f"/work_pools/{POOL}").status_code == httpx.codes.NOT_FOUND:
            self.check()
            if clock.now_s() > until_s:
                raise ProteusError(f"the Prefect worker made no pool within {_STARTS_S:.0f} s; see {self._logs}")
            clock.wait_until(clock.now_s() + _LOOK_S)

    def _register(self) -> None:
        clock = SystemClock()
        until_s = clock.now_s() + _DEPLOYS_S
        registration = self._registration = self._start("deploy", "deploy", "--all")
        while registration.exit_code is None:
            self.check()
            if clock.now_s() > until_s:
                raise ProteusError(f"the deployments were not registered within {_DEPLOYS_S:.0f} s; see {self._logs}")
            clock.wait_until(clock.now_s() + _LOOK_S)
        if registration.exit_code:
            registration.check()


def repository() -> Path:
    """Return the directory of prefect.yaml, which is the one that holds our packages.

    Raises
    ------
    InputError
        If there is no prefect.yaml.
    """
    directory = Path(__file__).resolve().parents[2]  # the package has a link to this folder
    if not (directory / "prefect.yaml").is_file():
        raise InputError(f"{directory / 'prefect.yaml'}: is not there; run this from a clone (`make .venv`)")
    return directory


def _pause(api: httpx.Client) -> None:
    """Pause the deployments that have a schedule, and the automations that run deployments."""
    for deployment in _found(api, "/deployments/filter"):
        if deployment["schedules"]:
            api.post(f"/deployments/{deployment['id']}/pause_deployment").raise_for_status()
    for automation in _found(api, "/automations/filter"):
        if any(action["type"] == "run-deployment" for action in automation["actions"]):
            api.patch(f"/automations/{automation['id']}", json={"enabled": False}).raise_for_status()


def _found(api: httpx.Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.post(path, json={}).raise_for_status().json()
    return found
