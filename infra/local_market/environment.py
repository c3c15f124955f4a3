"""The environment of a local run: a scaled clock, a simulated market behind an EC2 endpoint, a Prefect API.

`open` starts everything, in an order that lets the slow servers start concurrently; `close` ends it, also after a
partial start. `environment` holds the variables that connect a process to these servers.
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from proteus_spot.infra.child_process import Child
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.local_market.prefect_server import LocalPrefect
from proteus_spot.infra.open_close import OpenedAtStart
from proteus_spot.infra.processes.surroundings import python_module

#: This machine has no metadata service to wait for. The rest of AWS's settings is the user's, for data in S3.
LOCAL_AWS = {"AWS_EC2_METADATA_DISABLED": "true"}
#: Scale of a clock that practically stands still.
STILL = 1e-6


@contextmanager
def own_directory(directory: Path) -> Iterator[None]:
    """Create `directory` and lock it for this process while the context lasts.

    Raises
    ------
    InputError
        If it cannot be created, or another run uses it. After this error, and after an `InputError` of the context, the
        folders that were created here are removed if they are empty.
    """
    created = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    lock = directory / "run.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock_file = lock.open("w")
    except OSError as error:
        raise InputError(f"--dir {directory}: cannot be used ({error.strerror}); name another directory") from None
    with lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--dir {directory}: a run that is under way has it; name another directory") from None
        try:
            yield
        except InputError:
            lock.unlink()
            with suppress(OSError):  # a folder is not empty
                for folder in created:
                    folder.rmdir()
            raise


def market_file(directory: Path) -> Path:
    """Return the file in which a run in `directory` stores the state of its market."""
    return directory / "market.json"


def endpoint_file(directory: Path) -> Path:
    """Return the file that says where the market of a run in `directory` listens, with its key."""
    return directory / "endpoint.json"


def clock_file(directory: Path) -> Path:
    """Return the clock file of a run in `directory`."""
    return directory / "clock.json"


class LocalEnvironment(OpenedAtStart):
    """A simulated market and the servers around it, as child processes of this one.

    Parameters
    ----------
    directory : receives state, logs and the machines' disks.
    prices, catalog : the market to replay, and its instance types (None: the shipped ones).
    start_s : market time at which the market starts or continues.
    scale : market seconds per real second.
    notice_s : seconds from notice to eviction, in market time.
    endpoint_url : URL of a running endpoint; None starts one.
    availability, availability_from_s : availability traces of the market, ``[TYPE/ZONE=]FILE`` each, and the market
        time at which they begin.
    port : TCP port of the Prefect server; None takes a free one.
    auth : ``user:password`` that the Prefect server wants; empty: it wants none.
    """

    def __init__(
        self,
        directory: Path,
        prices: Path,
        catalog: Path | None,
        start_s: float,
        scale: float,
        notice_s: int,
        endpoint_url: str | None = None,
        availability: Sequence[str] = (),
        availability_from_s: int = 0,
        port: int | None = None,
        auth: str = "",
    ) -> None:
        self.directory = directory
        self._prices = prices
        self._catalog = catalog
        self._start_s = start_s
        self._scale = scale
        self._notice_s = notice_s
        self.endpoint_url = endpoint_url
        self._availability = tuple(availability)
        self._availability_from_s = availability_from_s
        self._clock_file = clock_file(directory)
        self._endpoint: Child | None = None
        self._key_id: str | None = None
        self.prefect = LocalPrefect(directory / "prefect", directory / "logs" / "prefect.log", port, auth)

    def open(self) -> None:
        """Start the servers and wait until they answer; the market's clock starts last."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # The clock barely moves until all servers are up: nothing can be bought before that.
        ScaledClock.create(self._clock_file, self._start_s, STILL)
        self.prefect.start()
        if self.endpoint_url is None:
            self.endpoint_url = self._start_endpoint()
        self.prefect.wait_ready()
        self.prefect.mark_unfinished_crashed()
        self.clock = ScaledClock.create(self._clock_file, self._start_s, self._scale)

    def close(self) -> None:
        """End all that `open` started, the machines of the market first."""
        try:
            if self._endpoint is not None:
                self._endpoint.stop()
        finally:
            self.prefect.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that connect a process to these servers."""
        assert self.endpoint_url is not None, "not open"
        return {
            **LOCAL_AWS,
            **({} if self._key_id is None else {"PROTEUS_EC2_KEY_ID": self._key_id}),
            **self.prefect.env,
            # Failures are raised to the command, which prints them in one line; details are in the UI.
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
            "PROTEUS_CLOCK": str(self._clock_file),
            "PROTEUS_EC2_ENDPOINT_URL": self.endpoint_url,
            "PROTEUS_EVENTS_URL": self.prefect.api_url,
            "PROTEUS_NODE_HOST": "127.0.0.1",
            "PROTEUS_NODE_PYTHON": sys.executable,
            "PROTEUS_NOTICE_S": str(self._notice_s),
        }

    def _start_endpoint(self) -> str:
        announce = endpoint_file(self.directory)
        announce.unlink(missing_ok=True)
        command = [
            *python_module("proteus_spot.infra.simulated_ec2.server"),
            *("--prices", str(self._prices)),
            *("--clock", str(self._clock_file)),
            *("--notice-s", str(self._notice_s)),
            *("--work-dir", str(self.directory / "machines")),
            *("--announce", str(announce)),
            *("--log", str(self.directory / "market-log.json")),
            *("--state", str(market_file(self.directory))),
            *("--parent-pid", str(os.getpid())),
        ]
        if self._catalog is not None:
            command += ["--catalog", str(self._catalog)]
        for trace in self._availability:
            command += ["--availability", trace]
        command += ["--availability-from", str(self._availability_from_s)]
        self._endpoint = Child(command, self.directory / "logs" / "endpoint.log", _without_aws()).start()
        clock = SystemClock()
        deadline_s = clock.now_s() + 60
        while not announce.exists():
            self._endpoint.check()
            if clock.now_s() > deadline_s:
                raise ProteusError(f"the EC2 endpoint did not start within 60 s: {self._endpoint.tail()}")
            clock.wait_until(clock.now_s() + 0.05)
        announced = json.loads(announce.read_text())
        self._key_id = announced["access_key_id"]
        return str(announced["url"])


def _without_aws() -> dict[str, str]:
    """Return this process's environment without the user's AWS configuration: the market's protocol reads it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, **LOCAL_AWS, "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
