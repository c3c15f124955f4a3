"""The controller as tasks see it: start, look, stop, drain. Synchronous, one connection a call, safe in any thread.

Nothing is held open between calls: a task that dies leaves nothing behind, and the controller does not notice.
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

#: Real seconds between two looks for a controller: a tenth of what has passed, within these bounds.
_LOOK_S = 0.1
_SELDOM_S = 2.0
#: How long a controller that is said to be somewhere is asked whether it is.
_ASK_S = 1.0
#: A clock that never comes: a status that is asked for the losses after it has none.
NO_LOSSES = 2**62


class ControllerUnreachable(ProteusError):
    """The controller did not answer; it may be starting anew, and the call may have taken effect."""


@dataclass(frozen=True)
class ControllerClient:
    """Calls to the controller at `address` (``tcp://host:port``), each answered within `timeout_s` or not at all.

    Raises
    ------
    ControllerUnreachable
        From every method, when nobody answers in time.
    """

    address: str
    timeout_s: float = 10.0

    def start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start the job or attach to it (`psengine.config.JobConfig.to_dict`); return the status.

        Raises
        ------
        InputError
            When the job cannot be run as it is written, or the controller runs another one.
        """
        answer = self._call("proteus_start", job=job)
        if "error" in answer:
            raise InputError(f"job {job.get('job_id')}: {answer['error']}")
        return answer

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Return the status (see `psengine.controller.status.describe`), with the losses of the clocks after `since_clock`.

        `NO_LOSSES` asks for none of them.
        """
        return self._call("proteus_status", since_clock=since_clock)

    def stop(self, reason: str) -> dict[str, Any]:
        """End the job at the clock under way, saving its model; return the status.

        The result is there once the state is ``stopped``; ``result["stopped"]`` is `reason` then.
        """
        return self._call("proteus_stop", reason=reason)

    def checkpoint(self) -> dict[str, Any]:
        """Have the committed state kept now; return ``{"clock": that of the newest checkpoint, "error": line or ""}``."""
        return self._call("proteus_checkpoint")

    def hold(self, clock: int | None) -> None:
        """Have no clock after `clock` begun until another one, or None, is asked for; also before the job is started."""
        self._call("proteus_hold", clock=clock)

    def drain(self, nodes: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Begin the planned departure of `nodes`, within `deadline_s` real seconds.

        Returns
        -------
        dict
            ``{"draining": names, "refused": names}``. Refused are names that are not known, and nodes that serve shards
            and so cannot leave. This is no status: ask for one to see when a node's state is ``drained``.
        """
        return self._call("proteus_drain", nodes=list(nodes), deadline_s=deadline_s)

    def notice(self, node: str, seconds_left: float) -> dict[str, Any]:
        """Pass an eviction notice on for a node that cannot."""
        return self._call("proteus_notice", node=node, seconds_left=seconds_left)

    def shutdown(self) -> None:
        """Close every node and the controller; they exit with code 0."""
        self._call("proteus_shutdown")

    def _call(self, op: str, **message: Any) -> dict[str, Any]:
        # A thread of its own, because the caller's may have an event loop that runs.
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
    """Return the address that the job's controller wrote, once it answers there; wait up to `deadline_s` for that.

    What a controller that was killed has written is still there, so an address alone proves nothing. `deadline_s` is in
    real seconds; a look that is under way then is let end (a second).

    Raises
    ------
    ControllerUnreachable
        When there is none by then.
    """
    blobs = open_blobs(load_settings().model_copy(update={"blob_url": blob_url}))
    name = JobPaths(job_id).rendezvous

    def met() -> str:
        address = str(blobs.read_json(name)["address"])
        there = ControllerClient(address, _ASK_S).status(NO_LOSSES)["job_id"]
        if there not in (None, job_id):
            raise ControllerUnreachable(f"controller at {address}: is of job {there} by now")
        return address

    attempts = Retrying(
        stop=stop_after_delay(deadline_s),
        wait=wait_exponential(_LOOK_S, max=_SELDOM_S, exp_base=1.1),
        retry=retry_if_exception_type((BlobError, ControllerUnreachable)),
    )
    try:
        return attempts(met)
    except RetryError as error:
        raise ControllerUnreachable(
            f"job {job_id}: no controller was met in {deadline_s:g} s ({error.last_attempt.exception()}); "
            "look at the first reliable node's console"
        ) from error
