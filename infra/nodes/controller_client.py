"""Synchronous client of a job's controller: one connection per call, usable from any thread.

No connection stays open between calls, so a task that dies leaves nothing behind and does not affect the controller.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from infra.errors import InputError, ProteusError
from infra.settings import load_settings
from infra.storage.blobs import BlobError, open_blobs
from infra.storage.job_paths import JobPaths

#: Bounds of the real seconds between two tries to meet a controller; the pause grows by a tenth each time.
_LOOK_S = 0.1
_SELDOM_S = 2.0
#: Timeout in real seconds of the call that checks whether a controller answers at its address.
_ASK_S = 1.0
#: A clock after every real one: a status since this clock contains no losses.
NO_LOSSES = 2**62


class ControllerUnreachable(ProteusError):
    """The controller did not answer; it may be restarting, and the call may have taken effect."""


@dataclass(frozen=True)
class ControllerClient:
    """Client of the controller at `address` (``tcp://host:port``), with a timeout of `timeout_s` real seconds a call.

    Raises
    ------
    ControllerUnreachable
        From every method, if no answer comes in time.
    """

    address: str
    timeout_s: float = 10.0

    def start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start the job or attach to it (`psengine.config.JobConfig.to_dict`); return the status.

        Raises
        ------
        InputError
            If the job cannot run as specified, or the controller runs another one.
        """
        answer = self._call("proteus_start", job=job)
        if "error" in answer:
            raise InputError(f"job {job.get('job_id')}: {answer['error']}")
        return answer

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Return the status (see `psengine.controller.status.describe`) with the losses after `since_clock`.

        With `NO_LOSSES` it contains none.
        """
        return self._call("proteus_status", since_clock=since_clock)

    def stop(self, reason: str) -> dict[str, Any]:
        """Stop the job at the end of the present clock and save its model; return the status.

        The result is available once the state is ``stopped``; ``result["stopped"]`` is `reason` then.
        """
        return self._call("proteus_stop", reason=reason)

    def checkpoint(self) -> dict[str, Any]:
        """Save a checkpoint of the committed state now.

        Returns
        -------
        dict
            ``{"clock": clock of the newest checkpoint, "error": line or ""}``.
        """
        return self._call("proteus_checkpoint")

    def hold(self, clock: int | None) -> None:
        """Pause the job after `clock`, until a call with a later clock or None; may be called before the start."""
        self._call("proteus_hold", clock=clock)

    def drain(self, nodes: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Begin the planned departure of `nodes`, within `deadline_s` real seconds.

        Returns
        -------
        dict
            ``{"draining": names, "refused": names}``. Refused are unknown names, and nodes that serve shards and so
            cannot leave. Poll `status` to see when a node's state is ``drained``.
        """
        return self._call("proteus_drain", nodes=list(nodes), deadline_s=deadline_s)

    def notice(self, node: str, seconds_left: float) -> dict[str, Any]:
        """Report an eviction notice for a node that cannot report it."""
        return self._call("proteus_notice", node=node, seconds_left=seconds_left)

    def shutdown(self) -> None:
        """Close every node and the controller; they exit with code 0."""
        self._call("proteus_shutdown")

    def _call(self, op: str, **message: Any) -> dict[str, Any]:
        # In a new thread, because the caller's may have a running event loop.
        with ThreadPoolExecutor(1, thread_name_prefix="controller-client") as thread:
            answer = thread.submit(asyncio.run, self._ask(op, message)).result()
            return cast(dict[str, Any], json.loads(json.dumps(answer)))  # tuples of the wire become lists again

    async def _ask(self, op: str, message: dict[str, Any]) -> Any:
        from distributed.comm.core import connect
        from distributed.core import send_recv

        async def ask() -> Any:
            comm = await connect(self.address, timeout=self.timeout_s)  # type: ignore[no-untyped-call]
            try:
                return await send_recv(comm, op=op, **message)
            finally:
                await comm.close()

        try:
            return await asyncio.wait_for(ask(), self.timeout_s)
        except (OSError, ValueError) as error:
            raise ControllerUnreachable(
                f"controller at {self.address}: no answer to {op} in {self.timeout_s:g} s "
                f"({type(error).__name__}); read the job's rendezvous again"
            ) from error


def wait_rendezvous(blob_url: str, job_id: str, deadline_s: float) -> str:
    """Return the address of the job's controller once it answers there; wait up to `deadline_s` real seconds.

    An address alone proves nothing: that of a killed controller stays in the blob store. A try that is under way at the
    deadline may take another second.

    Raises
    ------
    ControllerUnreachable
        If no controller answers by then.
    """
    blobs = open_blobs(load_settings().model_copy(update={"blob_url": blob_url}))
    name = JobPaths(job_id).rendezvous

    def find_address() -> str:
        address = str(blobs.read_json(name)["address"])
        served_job = ControllerClient(address, _ASK_S).status(NO_LOSSES)["job_id"]
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
