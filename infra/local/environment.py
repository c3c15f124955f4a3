"""What a run on one machine needs and does not have: a clock, a market behind an EC2 endpoint, a Prefect API.

Everything is started in `open`, in an order that lets the slow ones start side by side, and ended in `close`, also
when something failed half-way. `environment` is what a process must be given to live in this world.
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from infra.clock import ScaledClock, SystemClock
from infra.errors import InputError, ProteusError
from infra.local.child_process import Child
from infra.local.prefect_server import LocalPrefect
from infra.open_close import OpenedAtStart

#: Credentials that boto3 wants to see; the local endpoint believes anything.
LOCAL_AWS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
#: The scale of a clock that stands still, near enough.
STILL = 1e-6
_LOOPBACK = "127.0.0.1,localhost"


@contextmanager
def own_directory(directory: Path) -> Iterator[None]:
    """Make `directory`, and keep it to this process while the context lasts.

    Raises
    ------
    InputError
        If it cannot be made, or a run that is under way has it. After an `InputError` of the context, too, it is gone
        again if it was made here and is empty.
    """
    made = [place for place in (directory, *directory.parents) if not place.exists()]
    lock = directory / "run.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held = lock.open("w")
    except OSError as error:
        raise InputError(f"--dir {directory}: cannot be used ({error.strerror}); name another directory") from None
    with held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--dir {directory}: a run that is under way has it; name another directory") from None
        try:
            yield
        except InputError:
            lock.unlink()
            with suppress(OSError):  # something was written all the same
                for place in made:
                    place.rmdir()
            raise


def market_file(directory: Path) -> Path:
    """Return where a run in `directory` keeps what its market has sold."""
    return directory / "market.json"


def clock_file(directory: Path) -> Path:
    """Return where a run in `directory` keeps its clock."""
    return directory / "clock.json"


class LocalEnvironment(OpenedAtStart):
    """A simulated market and the servers around it, as child processes of this one.

    Parameters
    ----------
    directory : where state, logs and the machines' disks go.
    prices, catalog : the market to replay, and its instance types (None: the shipped ones).
    start_s : market time at which it begins, or goes on where it has stood still.
    scale : market seconds per real second.
    notice_s : warning before an eviction, in market seconds.
    endpoint_url : an endpoint that runs already; None starts one.
    availability, availability_from_s : availability traces of the market, ``[TYPE/ZONE=]FILE`` each, and the market time at
        which they begin.
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
        self.prefect = LocalPrefect(directory / "prefect", directory / "logs" / "prefect.log")

    def open(self) -> None:
        """Start everything and wait until it answers; the market's clock starts last."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # The clock barely moves until everything is up: nobody can buy before that.
        ScaledClock.create(self._clock_file, self._start_s, STILL)
        self.prefect.start()
        if self.endpoint_url is None:
            self.endpoint_url = self._start_endpoint()
        self.prefect.wait_ready()
        self.prefect.bury_unfinished()
        self.clock = ScaledClock.create(self._clock_file, self._start_s, self._scale)

    def close(self) -> None:
        """End everything that `open` started, the machines of the market first."""
        try:
            if self._endpoint is not None:
                self._endpoint.stop()
        finally:
            self.prefect.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that put a process into this world."""
        assert self.endpoint_url is not None, "not open"
        return {
            **LOCAL_AWS,
            **self.prefect.env,
            # What fails is raised to the command, which tells it in one line; the UI has the rest.
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
            "PROTEUS_CLOCK": str(self._clock_file),
            "PROTEUS_EC2_ENDPOINT_URL": self.endpoint_url,
            "PROTEUS_EVENTS_URL": self.prefect.api_url,
            "PROTEUS_NODE_HOST": "127.0.0.1",
            "PROTEUS_NODE_PYTHON": sys.executable,
            "PROTEUS_NOTICE_S": str(self._notice_s),
            **_past_proxies(),
        }

    def _start_endpoint(self) -> str:
        announce = self.directory / "endpoint.json"
        announce.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "infra.simulated_ec2.server"),
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
        for each in self._availability:
            command += ["--availability", each]
        command += ["--availability-from", str(self._availability_from_s)]
        self._endpoint = Child(command, self.directory / "logs" / "endpoint.log", {**os.environ, **LOCAL_AWS}).start()
        clock = SystemClock()
        deadline_s = clock.now_s() + 60
        while not announce.exists():
            self._endpoint.check()
            if clock.now_s() > deadline_s:
                raise ProteusError(f"the EC2 endpoint did not start within 60 s: {self._endpoint.tail()}")
            clock.wait_until(clock.now_s() + 0.05)
        url: str = json.loads(announce.read_text())["url"]
        return url


def _past_proxies() -> dict[str, str]:
    """Return the variables that keep calls on this machine from a proxy that the user may have."""
    names = ("NO_PROXY", "no_proxy")
    return {name: ",".join(filter(None, [os.environ.get(name), _LOOPBACK])) for name in names}
