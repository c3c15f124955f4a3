"""The deployments of prefect.yaml on a private server, with a process worker, a market and a state database."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_HOME, temporary_settings
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.child_process import Child
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.local_market.environment import LocalEnvironment
from proteus_spot.infra.local_market.prefect_server import LocalPrefect
from proteus_spot.infra.market_data.price_files import write_prices
from proteus_spot.infra.open_close import OpenedAtStart
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from tests.support.timeouts import PATIENCE

REPOSITORY = Path(__file__).parents[2]
POOL = "proteus"
#: What the worker puts into the environment of a flow's process.
_RUN_ID = "PREFECT__FLOW_RUN_ID"


class Deployed(OpenedAtStart):
    """A Prefect server at scale 1, set up by the commands that prefect.yaml names; a context manager that ends it all.

    Parameters
    ----------
    directory : takes every file that anything here writes.
    traces : the market.
    start_s : market time at which it begins.
    auth : user and password that the server wants, as in ``user:password``; None: it wants none.
    """

    def __init__(self, directory: Path, traces: TraceSet, start_s: float, auth: str | None = None) -> None:
        self.directory = directory
        prices = directory / "prices.csv"
        write_prices(prices, traces)
        self._world = LocalEnvironment(directory / "world", prices, None, start_s, 1.0, 120)
        self._auth = auth
        if auth is not None:
            _require(self._world.prefect, auth)
            # A new server has no runs, and this asks for them as nobody.
            self._world.prefect.mark_unfinished_crashed = lambda: None  # type: ignore[method-assign]
        self._workers: list[Child] = []
        self.blob_url = (directory / "blobs").as_uri()
        self._database_url = f"sqlite:///{directory / 'state.db'}"

    def open(self) -> None:
        """Start the server, the market and a worker, and register the deployments."""
        self._world.open()
        self.api_url = self._world.prefect.api_url
        self.ui_url = self._world.prefect.ui_url
        self.store = Store.open(self._database_url)
        user = None if self._auth is None else httpx.BasicAuth(*self._auth.split(":"))
        self.http = httpx.Client(base_url=self.api_url, timeout=20 * PATIENCE, auth=user)
        self.command("work-pool", "create", POOL, "--type", "process")
        self.command("deploy", "--all")
        self.start_worker()

    def close(self) -> None:
        """End every process."""
        for worker in self._workers:
            worker.stop()
        self._world.close()
        if hasattr(self, "store"):
            self.store.close()
            self.http.close()

    @property
    def clock(self) -> ScaledClock:
        """Market time."""
        return self._world.clock

    @property
    def environment(self) -> dict[str, str]:
        """What a process here is given."""
        return {
            **os.environ,
            **self._world.environment,
            "PROTEUS_DATABASE_URL": self._database_url,
            "PROTEUS_BLOB_URL": self.blob_url,
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "NO_COLOR": "1",
            **({} if self._auth is None else {"PREFECT_API_AUTH_STRING": self._auth}),
        }

    # What an operator types

    def command(self, *arguments: str) -> str:
        """Run `prefect …` in the repository; return what it said."""
        return self.python("-m", "prefect", "--no-prompt", *arguments)

    def python(self, *arguments: str) -> str:
        """Run a Python command in the repository; return what it said, and fail if it does."""
        done = self._run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """Run a Python command in the repository that refuses its input; return what it said."""
        done = self._run(*arguments)
        assert done.returncode == 2, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stderr

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90 * PATIENCE,
            check=False,
        )

    def start_worker(self, queue: str | None = None) -> None:
        """Start a process worker; for one queue of the pool, or for all."""
        log = self.directory / "logs" / f"worker-{len(self._workers)}.log"
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL]
        command += [] if queue is None else ["--work-queue", queue]
        self._workers.append(Child(command, log, self.environment).start())

    def kill_worker(self) -> None:
        """Kill the worker, and nothing but the worker."""
        os.kill(self._workers[-1].pid, signal.SIGKILL)
        wait_until(lambda: self._workers[-1].ended, "the worker's end")

    def kill_server(self) -> None:
        """Kill the server."""
        self._world.prefect._child.kill()

    def let_schedule_pass(self, seconds: float) -> None:
        """Move all runs to come so much earlier, in the database of the server, which must be away.

        When it is back, it looks to it as if it had been away for that much longer.
        """
        with closing(sqlite3.connect(self.directory / "world" / "prefect" / "prefect.db")) as database, database:
            to_come = database.execute(
                "SELECT run.id, run.expected_start_time, state.id, state.state_details FROM flow_run AS run "
                "JOIN flow_run_state AS state ON state.id = run.state_id "
                "WHERE run.auto_scheduled AND run.state_type = 'SCHEDULED'"
            ).fetchall()
            for run_id, due, state_id, details in to_come:
                moved = datetime.fromisoformat(due).replace(tzinfo=UTC) - timedelta(seconds=seconds)
                column = f"{moved:%Y-%m-%d %H:%M:%S.%f}"
                database.execute(
                    "UPDATE flow_run SET expected_start_time = ?, next_scheduled_start_time = ? WHERE id = ?",
                    (column, column, run_id),
                )
                told = json.dumps(json.loads(details) | {"scheduled_time": moved.isoformat()})
                database.execute("UPDATE flow_run_state SET state_details = ? WHERE id = ?", (told, state_id))

    def start_server(self) -> None:
        """Start the server again: the same database, the same port."""
        self._world.prefect.start()
        self._world.prefect.wait_ready()

    # What the UI does

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask the API; again, as Prefect's own client does, while it says 503 (its SQLite database is busy)."""
        busy = retry_if_result(lambda answer: answer.status_code == httpx.codes.SERVICE_UNAVAILABLE)
        attempts = Retrying(retry=busy, stop=stop_after_delay(20), wait=wait_fixed(0.5))
        try:
            answer: httpx.Response = attempts(self.http.request, method, path, json=body)
        except RetryError as error:
            return cast(httpx.Response, error.last_attempt.result())
        return answer

    def get(self, path: str) -> dict[str, Any]:
        """Get a record from the API."""
        answer = self.send("GET", path)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        found: dict[str, Any] = answer.json()
        return found

    def post(self, path: str, **body: Any) -> Any:
        """Post to the API; return its answer."""
        answer = self.send("POST", path, body)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def deployment_id(self, name: str) -> str:
        """Return the id of a deployment, as in ``train/train``."""
        return str(self.get(f"/deployments/name/{name}")["id"])

    def ask(self, deployment: str, parameters: Mapping[str, Any], **more: str) -> httpx.Response:
        """Ask for a run of a deployment, as "Custom run" does; return the answer, whatever it is."""
        body = {"parameters": dict(parameters), "state": {"type": "SCHEDULED"}, **more}
        return self.send("POST", f"/deployments/{self.deployment_id(deployment)}/create_flow_run", body)

    def start(self, deployment: str, parameters: Mapping[str, Any], **more: str) -> str:
        """Have a deployment run; return the run's id."""
        answer = self.ask(deployment, parameters, **more)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        return str(answer.json()["id"])

    def retry(self, run_id: str) -> None:
        """Do what the UI's "Retry" does with an ended run."""
        state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}
        answer = self.post(f"/flow_runs/{run_id}/set_state", state=state, force=True)
        assert answer["status"] == "ACCEPT", answer

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a flow run."""
        return self.get(f"/flow_runs/{run_id}")

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        """Return the runs of a deployment, those to come included."""
        found: list[dict[str, Any]] = self.post(
            "/flow_runs/filter", flow_runs={"deployment_id": {"any_": [self.deployment_id(deployment)]}}
        )
        return found

    def await_state(self, run_id: str, state: str, within_s: float) -> dict[str, Any]:
        """Wait until a run is in `state` (a type, as in COMPLETED); fail, with its log, when it ends otherwise."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.update(self.run(run_id))
            ended = seen["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
            assert not ended or seen["state_type"] == state, f"{seen['state']['message']}\n{self.logs(run_id)}"
            return bool(seen["state_type"] == state)

        wait_until(there, f"run {run_id} to be {state}", within_s)
        return seen

    def logs(self, run_id: str) -> str:
        """Return what a run has said, as far as its process has sent it: every two seconds, and at its end."""
        lines: list[dict[str, Any]] = []
        wanted = {"logs": {"flow_run_id": {"any_": [run_id]}}, "sort": "TIMESTAMP_ASC"}
        while page := self.post("/logs/filter", **wanted, offset=len(lines)):  # two hundred at a time
            lines += page
        return "\n".join(line["message"] for line in lines)

    def at_task(self, run_id: str, name: str, attempt: int = 1) -> bool:
        """Whether the run, at its attempt of this number, is at the task called `name`."""
        tasks = self.post("/task_runs/filter", flow_runs={"id": {"any_": [run_id]}})
        return any(
            task["name"].startswith(name) and task["state_type"] == "RUNNING" and task["flow_run_run_count"] == attempt
            for task in tasks
        )

    def await_task(self, run_id: str, name: str, within_s: float, attempt: int = 1) -> None:
        """Wait until the run is at the task called `name`; fail, with its log, when it ends before."""

        def there() -> bool:
            state = self.run(run_id)["state_type"]
            assert state not in ("COMPLETED", "FAILED"), f"run {run_id} is {state}\n{self.logs(run_id)}"
            return self.at_task(run_id, name, attempt)

        wait_until(there, f"run {run_id} to be at {name!r}", within_s)

    # The processes

    def flow_process(self, run_id: str) -> psutil.Process:
        """Return the process that a flow run's body is in."""
        found = [process for process in self.processes() if _environment(process).get(_RUN_ID) == run_id]
        assert len(found) == 1, f"run {run_id} has {len(found)} processes"
        return found[0]

    def processes(self) -> list[psutil.Process]:
        """Return every living process that has to do with this set-up, ourselves left out."""
        here = str(self.directory)
        return [
            process
            for process in psutil.process_iter()
            if process.pid != os.getpid()
            and _lives(process)
            and any(here in value for value in _environment(process).values())
        ]

    def market_log(self) -> list[dict[str, Any]]:
        """Return the market's own record of instances."""
        answer = httpx.get(f"{self._world.endpoint_url}/_market/log", headers=self._market_key)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()
        return found

    def market_fault(self, **fault: Any) -> None:
        """Have the market make a trouble (`infra.simulated_ec2.faults.Fault`)."""
        url = f"{self._world.endpoint_url}/_market/fault"
        httpx.post(url, json=fault, headers=self._market_key).raise_for_status()

    @property
    def _market_key(self) -> dict[str, str]:
        return {KEY_HEADER: self._world.environment["PROTEUS_EC2_KEY_ID"]}


@contextmanager
def prefect_api(directory: Path, auth: str | None = None) -> Iterator[LocalPrefect]:
    """Have flows of this very process talk to a server of their own, which ends when all was told.

    Prefect's own harness waits without a limit for whatever this process has not told any server, this one or another.

    Parameters
    ----------
    auth : user and password that the server wants, as in ``user:password``; None: it wants none.
    """
    server = LocalPrefect(directory / "prefect", directory / "server.log")
    if auth is not None:
        _require(server, auth)
    ours = {PREFECT_API_URL: server.api_url, PREFECT_HOME: directory / "prefect", PREFECT_API_AUTH_STRING: auth}
    server.start()
    try:
        server.wait_ready()
        with temporary_settings(ours):
            yield server
            for told in (APILogWorker, EventsWorker):
                told.drain_all(timeout=20 * PATIENCE)
    finally:
        server.stop()


def _require(server: LocalPrefect, auth: str) -> None:
    assert server._child._env is not None
    server._child._env["PREFECT_SERVER_API_AUTH_STRING"] = auth


def without_settings(patch: pytest.MonkeyPatch) -> None:
    """Take away what this process's environment says to Prefect, to boto3 and to us."""
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "PROTEUS_", "AWS_"))]:
        patch.delenv(name)


def wait_until(condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
    """Wait until `condition()` holds, looking twice a second; fail naming `what` if it does not in time."""
    clock = SystemClock()
    deadline_s = clock.now_s() + within_s * PATIENCE
    while not condition():
        assert clock.now_s() < deadline_s, f"waited {within_s * PATIENCE:g} s for {what}"
        clock.wait_until(clock.now_s() + 0.5)


def rendezvous(blob_url: str, job_id: str) -> dict[str, Any]:
    """Return what the job's controller wrote of itself (address, pid)."""
    return dict(Blobs(blob_url).read_json(JobPaths(job_id).rendezvous))


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):  # it ended while we looked, or is another user's
        return {}


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
