"""The process of a node: one Dask worker with the engine's agent, which meets the controller through the blob store.

It is imported after `infra.nodes.main.set_up`, which sets what its libraries read at import.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed import Worker
from numpy.typing import NDArray

from proteus_spot.infra.applications.code_shipping import JobCode
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes.keys import job_key
from proteus_spot.infra.nodes.open_files import raise_file_limit
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs, DamagedSet, blobs_of_process
from proteus_spot.infra.storage.checkpoints import read_shard, read_state
from proteus_spot.infra.storage.job_paths import JobPaths, part_name
from proteus_spot.infra.tls.job_keys import NODE, dask_security
from proteus_spot.infra.version import program_version
from proteus_spot.psengine.config import JobError
from proteus_spot.psengine.protocol.protocol_version import PROTOCOL, version_misfit
from proteus_spot.psengine.rpc.cancellation import cancel_all, first_of
from proteus_spot.psengine.rpc.transport import Transport, Unreachable
from proteus_spot.psengine.shell.dask_plugins import AgentPlugin, hello

if TYPE_CHECKING:
    from proteus_spot.infra.ec2.notice_poller import NoticePoller

logger = logging.getLogger("proteus_spot.infra.nodes.node_process")

T = TypeVar("T")

_LOOK_S = 0.1
#: Seconds after which a controller that was not met is looked for less often, every `_SELDOM_S`.
_SOON_S = 10.0
_SELDOM_S = 2.0
_CALL_S = 5.0


async def run_node(
    options: argparse.Namespace, blobs: Blobs, rendezvous: str, stop: asyncio.Event, code: JobCode
) -> int:
    """Run the node until the controller closes it or `stop` is set; return the exit code.

    Parameters
    ----------
    options : those of `infra.nodes.main`.
    blobs : the blob store of the job.
    rendezvous : blob from which the controller's address is read.
    code : the job's own code.
    """
    generation = 0
    while not stop.is_set():
        address = await _meet(blobs, rendezvous, stop)
        key = await job_key(options, blobs, NODE, stop)  # the controller had its own, so all are there
        if address is None or stop.is_set():
            return 0
        try:
            code_sha256 = await asyncio.to_thread(code.digest)
        except DamagedSet:
            raise  # the node cannot join with that; the supervisor retries with growing delays
        except BlobError as error:  # a temporary fault of the store
            logger.warning("%s", error)
            await first_of(stop.wait(), asyncio.sleep(1.0))
            continue
        generation += 1
        mark = secrets.token_hex(4)  # a port may be that of a process that has ended
        loaders = (_load, partial(_load_shard, blobs))
        plugin = AgentPlugin(
            options.name, options.threads, *loaders, mark=mark, state_loader=partial(_load_state, blobs)
        )
        with tempfile.TemporaryDirectory(prefix="proteus-node-") as scratch:
            worker = Worker(
                address,
                nthreads=options.threads,
                name=f"{options.name}#{os.getpid()}.{generation}",  # Dask refuses a name while its predecessor lingers
                host=options.host,
                memory_limit=0,
                death_timeout=_CALL_S,
                security=None if key is None else dask_security(key),
                connection_limit=raise_file_limit() // 2,
                local_directory=scratch,
                plugins=(plugin,),
                startup_information=hello(
                    options.name, options.tier, options.threads, code_sha256, program_version(), mark
                ),
                dashboard=False,
            )
            try:
                await worker
            except (OSError, ValueError) as error:  # no scheduler at that address any more, or it refused this node
                logger.warning("cannot join %s: %s", address, error)
                await worker.close(executor_wait=False)
                await first_of(stop.wait(), asyncio.sleep(1.0))
                continue
            logger.info("node %s joined %s as %s", options.name, address, worker.address)
            polling = [
                asyncio.create_task(watch(options, plugin, address)) for watch in (_watch_notices, _watch_rebalances)
            ]
            await first_of(stop.wait(), worker.finished())  # type: ignore[no-untyped-call]
            await cancel_all(polling)  # their errors were logged when they happened
            await worker.close(executor_wait=False)
        if plugin.fault:
            logger.error("a fault in the node: %s", plugin.fault)
            return 1
        if plugin.close_requested:
            logger.info("closed by the controller")
            return 0
        if not stop.is_set():
            await asyncio.to_thread(_log_loss, blobs, options.job, address)
    return 0


def _log_loss(blobs: Blobs, job_id: str, address: str) -> None:
    """Log that the controller has gone: a loss, but where the training has ended."""
    try:
        ended = blobs.manifest(JobPaths(job_id).model) is not None
    except BlobError:
        ended = False
    if ended:
        logger.info("the model is stored and the controller has ended; waiting for the end of this machine")
    else:
        logger.warning("lost the controller at %s; looking for it again", address)


async def _meet(blobs: Blobs, rendezvous: str, stop: asyncio.Event) -> str | None:
    """Return the controller's address once it accepts connections; None on `stop`.

    Raises
    ------
    InputError
        If the controller speaks another protocol: both versions, and the fix.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not stop.is_set():
        try:
            meeting = await asyncio.to_thread(blobs.read_json, rendezvous)
            address = str(meeting["address"])
            host, _, port = address.rpartition("://")[2].rpartition(":")
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), 2.0)
        except (BlobMissing, OSError):
            pause_s = _LOOK_S
        except BlobError as error:  # a temporary fault of the store
            logger.warning("%s", error)
            pause_s = 5 * _LOOK_S
        else:
            writer.close()
            if meeting.get("protocol") != PROTOCOL:
                theirs = str(meeting.get("version", ""))
                raise InputError(version_misfit(f"the controller at {address}", theirs, "this node", program_version()))
            return address
        if loop.time() - began >= _SOON_S:
            pause_s = _SELDOM_S
        await first_of(stop.wait(), asyncio.sleep(pause_s))
    return None


def _load(data_url: str, partition: int) -> Mapping[str, NDArray[np.generic]]:
    try:
        return blobs_of_process(data_url).read_npz(part_name(partition))
    except BlobMissing as error:  # a store that is away raises another error
        raise JobError(str(error)) from error


def _load_shard(blobs: Blobs, checkpoint: str, shard: int) -> Mapping[str, NDArray[np.generic]]:
    with _damage_lasts():
        return read_shard(blobs, checkpoint, shard)


def _load_state(blobs: Blobs, checkpoint: str, partition: int) -> Mapping[str, NDArray[np.generic]]:
    with _damage_lasts():
        return read_state(blobs, checkpoint, partition)


@contextmanager
def _damage_lasts() -> Iterator[None]:
    """Raise what no later attempt can help as a `JobError`; a store that is away raises another error."""
    try:
        yield
    except (BlobMissing, DamagedSet) as error:
        raise JobError(str(error)) from error


async def _watch_notices(options: argparse.Namespace, plugin: AgentPlugin, controller: str) -> None:
    """Poll the metadata service for an eviction notice, and send the first one until the controller has received it."""
    if not _is_polled(options):
        return
    assert plugin.agent is not None
    transport = plugin.agent.transport
    try:
        notice = await _found(options, lambda poller: poller.poll())
        logger.info("notice: %s in %.1f s", notice.action, notice.seconds_left)
        about = _about(options, takes_at_s=int(notice.at.timestamp()))
        await _send_notice(transport, controller, options.name, notice.seconds_left, about)
    except Exception:
        logger.exception("polling for eviction notices has failed; this node will not report one")
        raise


async def _watch_rebalances(options: argparse.Namespace, plugin: AgentPlugin, controller: str) -> None:
    """Poll for a rebalance recommendation, and send the first one until the controller has received it."""
    if not _is_polled(options) or _about(options) is None:
        return
    assert plugin.agent is not None
    transport = plugin.agent.transport
    try:
        at = await _found(options, lambda poller: poller.poll_rebalance())
        logger.info("a rebalance is recommended, at %s", at)
        about = _about(options, at_s=int(at.timestamp()))
        while True:
            try:
                await transport.call(controller, "proteus_rebalance", _CALL_S, node=options.name, about=about)
            except Unreachable as error:
                logger.warning("rebalance recommendation not delivered: %s", error)
                await asyncio.sleep(options.poll_s)
            else:
                return
    except Exception:
        logger.exception("polling for rebalance recommendations has failed; this node will not report one")
        raise


def _is_polled(options: argparse.Namespace) -> bool:
    return options.tier == "transient" and not options.no_notices


def _about(options: argparse.Namespace, **more: int) -> dict[str, Any] | None:
    """Return which machine of which purchase this is; None for a machine that no job has bought."""
    allocation = os.environ.get("PROTEUS_ALLOCATION")
    if not allocation:
        return None
    return {"job_id": options.job, "allocation_id": allocation, "instance_id": options.name, **more}


async def _found(options: argparse.Namespace, poll: Callable[[NoticePoller], Awaitable[T | None]]) -> T:
    """Return what `poll` finds in the metadata service, as soon as it finds it."""
    poller = await asyncio.to_thread(_poller)  # its imports are slow, and the node works already
    try:
        while (found := await poll(poller)) is None:
            await asyncio.sleep(options.poll_s)
    finally:
        await poller.close()
    return found


def _poller() -> NoticePoller:
    from proteus_spot.infra.ec2.notice_poller import NoticePoller

    return NoticePoller()


async def _send_notice(
    transport: Transport, controller: str, node: str, seconds_left: float, about: dict[str, Any] | None
) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds_left
    while True:
        left = until - loop.time()
        try:
            await transport.call(controller, "proteus_notice", _CALL_S, node=node, seconds_left=left, about=about)
        except Unreachable as error:
            logger.warning("notice not delivered: %s", error)
            await asyncio.sleep(_LOOK_S)
        else:
            return
