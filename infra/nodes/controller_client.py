"""Synchronous client of a job's controller: one connection per call, usable from any thread.

No connection stays open between calls, so a task that dies leaves nothing behind and does not affect the controller. A
controller runs users' code, so its answer is text of limited length that is parsed as JSON, never unpickled.
"""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import BlobError, open_blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.tls.job_keys import CONTROLLER, head_context, uses_tls
from proteus_spot.infra.version import program_version
from proteus_spot.psengine.controller.state import IMPORTING
from proteus_spot.psengine.protocol.protocol_version import PROTOCOL, version_misfit

#: Bounds of the real seconds between two tries to meet a controller; the pause grows by a tenth each time.
_LOOK_S = 0.1
_SELDOM_S = 2.0
#: Timeout in real seconds of the call that checks whether a controller answers at its address.
_ASK_S = 1.0
#: A clock after every real one: a status since this clock contains no losses.
NO_LOSSES = 2**62
#: Maximum bytes of an answer: the losses of a million clocks fit into it.
MOST_BYTES = 1 << 26
_PART_BYTES = 1 << 16
#: Characters of a controller's error that are shown.
_SHOWN = 300


class ControllerUnreachable(ProteusError):
    """The controller did not answer; it may be restarting, and the call may have taken effect."""


class OtherVersion(ProteusError):
    """The job's controller speaks another protocol than this program; the line names both versions."""


@dataclass(frozen=True)
class ControllerClient:
    """Client of the controller at `address`, with a timeout of `timeout_s` real seconds a call.

    The address is ``tcp://host:port``, or ``tls://host:port/job``: then the key of the job is read from the blob store
    at `blob_url` (None: that of the settings).

    Raises
    ------
    ControllerUnreachable
        From every method, if no answer comes in time.
    """

    address: str
    timeout_s: float = 10.0
    blob_url: str | None = None

    def start(
        self, job: dict[str, Any], say: Callable[[str], None] = lambda line: None, wait_s: float | None = None
    ) -> dict[str, Any]:
        """Start the job or attach to it (`psengine.config.JobConfig.to_dict`); return the status.

        The controller imports the user's module and reads checkpoints before it answers. That may take as long as a
        machine may take to join (`join_minutes`).

        Parameters
        ----------
        say : called once with a line on what is waited for, if the first call times out.
        wait_s : real seconds to wait; None: those of `join_minutes`.

        Raises
        ------
        InputError
            If the job cannot run as specified, or the controller runs another one.
        """
        minutes, clock = load_settings().join_minutes if wait_s is None else wait_s / 60, SystemClock()
        until_s, said = clock.now_s() + minutes * 60, False
        while True:
            try:
                answer = self._ask("start", job=job)
                break
            except ControllerUnreachable:
                # It imports a large module, unless it is gone: then it does not say where it stands, either.
                if clock.now_s() > until_s or not self.status(NO_LOSSES)["reason"].startswith(IMPORTING):
                    raise
            if not said:
                what = f"the controller imports {job.get('app')}"
                say(f"job {job.get('job_id')}: {what}; this is waited for, at most {minutes:g} minutes")
            said = True
        if "error" in answer:
            raise InputError(f"job {job.get('job_id')}: {answer['error']}")
        return answer

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Return the status (see `psengine.controller.status.describe`) with the losses after `since_clock`.

        With `NO_LOSSES` it contains none.
        """
        return self._ask("status", since_clock=since_clock)

    def stop(self, reason: str) -> dict[str, Any]:
        """Stop the job at the end of the present clock and save its model; return the status.

        The result is available once the state is ``stopped``; ``result["stopped"]`` is `reason` then.
        """
        return self._ask("stop", reason=reason)

    def checkpoint(self) -> dict[str, Any]:
        """Save a checkpoint of the committed state now.

        Returns
        -------
        dict
            ``{"clock": clock of the newest checkpoint, "error": line or ""}``.
        """
        return self._ask("checkpoint")

    def traffic(self) -> dict[str, Any]:
        """Return `links`, what pairs of nodes have exchanged, and `model_bytes`, the size of the model.

        A link is [node, node, bytes]; "" is the controller's process.
        """
        return self._ask("traffic")

    def hold(self, clock: int | None) -> None:
        """Pause the job after `clock`, until a call with a later clock or None; may be called before the start."""
        self._call("hold", clock=clock)

    def drain(self, nodes: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Begin the planned departure of `nodes`, within `deadline_s` real seconds.

        Returns
        -------
        dict
            ``{"draining": names, "refused": names}``. Refused are unknown names, and nodes that serve shards and so
            cannot leave. Poll `status` to see when a node's state is ``drained``.
        """
        return self._ask("drain", nodes=list(nodes), deadline_s=deadline_s)

    def notice(self, node: str, seconds_left: float, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Report an eviction notice for a node that cannot report it; `about` as for `ControllerShell.notice`."""
        return self._ask("notice", node=node, seconds_left=seconds_left, about=about)

    def shutdown(self) -> None:
        """Close every node and the controller; they exit with code 0."""
        self._call("shutdown")

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        answer = self._call(op, **arguments)
        if not isinstance(answer, dict):
            raise ControllerUnreachable(f"controller at {self.address}: {op} was answered by no object")
        return cast(dict[str, Any], answer)

    def _call(self, op: str, **arguments: Any) -> Any:
        try:
            answer = _exchange(self.address, {"op": op, "arguments": arguments}, self.timeout_s, self.blob_url)
        except (OSError, ValueError, RecursionError, BlobError) as error:
            raise ControllerUnreachable(
                f"controller at {self.address}: no answer to {op} in {self.timeout_s:g} s "
                f"({type(error).__name__}); read the job's rendezvous again"
            ) from error
        if not isinstance(answer, dict) or "answer" not in answer:
            reason = str(answer.get("error"))[:_SHOWN] if isinstance(answer, dict) else "no such answer"
            raise ControllerUnreachable(f"controller at {self.address}: {op} failed: {reason}")
        return answer["answer"]


def host_and_port(address: str) -> tuple[str, str]:
    """Return the host and the port of a controller's address."""
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    return host.strip("[]"), port


@contextmanager
def _connected(address: str, timeout_s: float, blob_url: str | None) -> Iterator[socket.socket]:
    host, port = host_and_port(address)
    with socket.create_connection((host, int(port)), timeout_s) as plain:
        if not address.startswith("tls://"):
            if uses_tls(host, load_settings().tls):  # whatever the bucket says, which nodes may write
                raise ConnectionError("it takes plain connections")
            yield plain
            return
        context = head_context(blob_url, address.rpartition("/")[2])
        with context.wrap_socket(plain) as connection:
            subject: Any = (connection.getpeercert() or {}).get("subject", ())
            if (("commonName", CONTROLLER),) not in subject:
                raise ConnectionError("no controller has this port")
            yield connection


def _exchange(address: str, request: dict[str, Any], timeout_s: float, blob_url: str | None) -> Any:
    """Send a line of JSON and return the one that answers it; ValueError for what is not an address or no JSON."""
    clock = SystemClock()
    until_s = clock.now_s() + timeout_s
    with _connected(address, timeout_s, blob_url) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        received = bytearray()
        while not received.endswith(b"\n"):
            connection.settimeout(max(until_s - clock.now_s(), 0.001))
            part = connection.recv(_PART_BYTES)
            if not part:
                raise ConnectionError("the answer ends in the middle")
            received += part
            if len(received) > MOST_BYTES:
                raise ValueError(f"the answer is longer than {MOST_BYTES} bytes")
            if clock.now_s() > until_s:
                raise TimeoutError
    return json.loads(received)


#: Whether a controller that the blob store names may be called: given the rendezvous, say whether the machine is ours.
IsOurs = Callable[[Mapping[str, Any]], bool]


def wait_rendezvous(blob_url: str, job_id: str, deadline_s: float, is_ours: IsOurs | None = None) -> str:
    """Return the address of the job's controller once it answers there; wait up to `deadline_s` real seconds.

    An address alone proves nothing: that of a killed controller stays in the blob store, and any writer of it
    can name any. A try that is under way at the deadline may take another second.

    Parameters
    ----------
    is_ours : checks a rendezvous before anything is sent to its address; None trusts the store, as on one machine.

    Raises
    ------
    ControllerUnreachable
        If no controller answers by then.
    OtherVersion
        If it speaks another protocol.
    """
    blobs = open_blobs(load_settings().model_copy(update={"blob_url": blob_url}))
    name = JobPaths(job_id).rendezvous

    def find_address() -> str:
        meeting = blobs.read_json(name)
        if not isinstance(meeting, dict):
            raise ControllerUnreachable(f"{blobs.url_of(name)}: names no controller")
        if is_ours is not None and not is_ours(meeting):
            raise ControllerUnreachable(f"{blobs.url_of(name)}: names no machine of the job that is alive")
        if meeting.get("protocol") != PROTOCOL:
            theirs = str(meeting.get("version", ""))
            raise OtherVersion(
                version_misfit(f"job {job_id}: its controller", theirs, "this program", program_version())
            )
        address = str(meeting.get("control"))
        served_job = ControllerClient(address, _ASK_S, blob_url).status(NO_LOSSES).get("job_id", "")
        if served_job not in (None, job_id):
            raise ControllerUnreachable(f"controller at {address}: serves job {served_job} by now")
        return address

    attempts = Retrying(
        stop=stop_after_delay(deadline_s),
        wait=wait_exponential(_LOOK_S, max=_SELDOM_S, exp_base=1.1),
        retry=retry_if_exception_type((BlobError, ControllerUnreachable)),
    )
    try:
        return attempts(find_address)
    except RetryError as error:
        raise ControllerUnreachable(
            f"job {job_id}: no controller was met in {deadline_s:g} s ({error.last_attempt.exception()}); "
            "look at the first reliable node's console"
        ) from error
