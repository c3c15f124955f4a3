"""The process that a machine runs: a node of a training job, or the job's controller.

Run it as `python -m infra.nodes.main --job ID --blob URL --name INSTANCE --tier reliable|transient`. Without
`--controller` it is a node: one Dask worker with the engine's agent. With it, it is the job's controller: Dask's
scheduler and the engine's controller, nothing else. The first reliable node runs both, as two processes, so that a
kernel never delays the controller. They meet through the blob store: the controller writes its address to
`jobs/<id>/rendezvous.json`; nodes poll for it, and read it again when the scheduler was lost. The logs of both are
stored there too (`node_logs`).

A node looks for the controller until it is ended: by the guard of its machine, at the latest (`lease_guard`).

Exit code 0: closed by the controller, or ended by SIGTERM. 1: failed. 2: bad options. The supervisor in the user-data
restarts a process that ends with another code than 0.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.nodes.logged_process import exit_code, log_to_console
from psengine.rpc.cancellation import cancel_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from infra.applications.code_shipping import JobCode
    from infra.ec2.notice_poller import NoticePoller
    from infra.storage.blobs import Blobs
    from psengine.rpc.transport import Transport
    from psengine.shell.callbacks import ControllerCallbacks
    from psengine.shell.controller_shell import ControllerShell
    from psengine.shell.dask_plugins import AgentPlugin

logger = logging.getLogger("infra.nodes.main")

_LOOK_S = 0.1
#: Seconds after which a controller that was not met is looked for less often, every `_SELDOM_S`.
_SOON_S = 10.0
_SELDOM_S = 2.0
_CALL_S = 5.0
_LEASE_LOOK_S = 0.5

#: Set to 1: a node's threads run micro-tasks, and a library's own threads would compete with them.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

#: Differences from Dask's defaults, which suit long-lived clusters.
DASK_CONFIG: dict[str, Any] = {
    "distributed.comm.timeouts.connect": "2s",  # a dead address is noticed in 2 s, not 30
    "distributed.comm.offload": False,
    "distributed.comm.compression": False,
    "distributed.comm.shard": "64GiB",  # an array is one frame: Dask would copy the parts of a split one together
    # Silent nodes are detected by psengine.membership.failure_detector, which gives slow ones time.
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.allowed-failures": 1000000,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.tick.interval": "1s",  # monitoring should take little time from the kernels
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.active-memory-manager.start": False,  # the engine stores nothing in Dask's memory
    "logging": {"distributed": "warning"},
}

#: Routes that Dask's dashboard pages need.
DASHBOARD_ROUTES = ["distributed.http.scheduler.info", "distributed.http.health", "distributed.http.statics"]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(prog="python -m infra.nodes.main", description="A node of a training job.")
    parser.add_argument("--job", required=True, help="job id")
    parser.add_argument("--blob", required=True, help="fsspec URL of the blob store")
    parser.add_argument("--name", required=True, help="instance id")
    parser.add_argument("--tier", choices=("reliable", "transient"), required=True)
    parser.add_argument("--threads", type=int, default=1, help="number of micro-tasks that run at a time")
    parser.add_argument("--controller", action="store_true", help="run the controller instead of a node")
    parser.add_argument("--dashboard", action="store_true", help="the controller serves Dask's dashboard")
    parser.add_argument("--host", default=os.environ.get("PROTEUS_NODE_HOST"), help="address to listen on")
    parser.add_argument("--poll-s", type=float, default=5.0, help="real seconds between polls for a notice")
    parser.add_argument("--no-notices", action="store_true", help="do not poll the metadata service")
    options = parser.parse_args(arguments)
    if options.threads < 1:
        parser.error(f"--threads {options.threads}: must be at least 1")
    if options.poll_s <= 0:
        parser.error(f"--poll-s {options.poll_s}: must be above 0")
    return options


def set_up() -> None:
    """Set what libraries read at import, NumPy and `distributed` among them; call it before importing them.

    Raises
    ------
    InputError
        If the processor cannot run the kernels that `PROTEUS_CPU_KERNELS` names.
    """
    from infra.nodes.cpu_kernels import kernel_environment
    from infra.settings import load_settings

    os.environ.update(kernel_environment(load_settings().cpu_kernels))
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    log_to_console()
    logging.captureWarnings(True)
    import dask

    dask.config.set(DASK_CONFIG)


def main(arguments: list[str] | None = None) -> int:
    """Run the node or controller until it is closed; return the exit code."""
    from infra.errors import ProteusError

    options = parse(arguments)
    try:
        set_up()
    except ProteusError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    from infra.nodes.malloc import retain_freed_memory
    from infra.nodes.open_files import raise_file_limit
    from infra.storage.node_logs import stored_logs

    retain_freed_memory()
    raise_file_limit()
    role = "controller" if options.controller else "node"
    with stored_logs(options.job, options.name, role, lambda: _open(options.blob)):
        return exit_code(lambda: _run(options), logger)


async def _run(options: argparse.Namespace) -> int:
    from infra.applications.code_shipping import JobCode
    from infra.storage.job_paths import JobPaths

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    blobs, rendezvous = _open(options.blob), JobPaths(options.job).rendezvous
    work = _controller if options.controller else _node
    with tempfile.TemporaryDirectory(prefix="proteus-code-") as code_directory:
        return await work(options, blobs, rendezvous, stop, JobCode(blobs, options.job, Path(code_directory)))


def _open(url: str) -> Blobs:
    """Return the blobs under `url`, with the other settings of this process (a bucket's region)."""
    from infra.settings import load_settings
    from infra.storage.blobs import open_blobs

    return open_blobs(load_settings().model_copy(update={"blob_url": url}))


# -- the controller -------------------------------------------------------------------------------------------------


async def _controller(
    options: argparse.Namespace, blobs: Blobs, rendezvous: str, stop: asyncio.Event, code: JobCode
) -> int:
    from distributed import Scheduler

    from infra.version import program_version
    from psengine.protocol.version import PROTOCOL
    from psengine.shell.control_port import ControlPort
    from psengine.shell.controller_shell import ControllerShell

    if options.dashboard:
        import dask

        dask.config.set({"distributed.scheduler.http.routes": DASHBOARD_ROUTES})
    # The dashboard listens where the scheduler does; on a local run that is the loopback address.
    pages = f"{options.host or ''}:0"
    async with Scheduler(host=options.host, port=0, dashboard=options.dashboard, dashboard_address=pages) as scheduler:
        shell = ControllerShell(scheduler, _callbacks(blobs, code, options.job), version=program_version())
        shell.open()
        control = ControlPort(shell.control)
        host = scheduler.address.rpartition("://")[2].rpartition(":")[0]
        port = await control.open(options.host or ("::" if host.startswith("[") else "0.0.0.0"))
        meeting = {"address": scheduler.address, "job_id": options.job, "name": options.name, "pid": os.getpid()}
        meeting |= {"control": f"tcp://{host}:{port}", "protocol": PROTOCOL, "version": program_version()}
        if options.dashboard:
            meeting["dashboard"] = _dashboard_url(scheduler)
        await asyncio.to_thread(blobs.write_json, rendezvous, meeting)
        logger.info("controller of job %s at %s", options.job, scheduler.address)
        await _first(stop.wait(), shell.closing.wait(), _checkpoint_before_the_end(shell))
        control.close()
        await shell.close()
        await asyncio.to_thread(_withdraw, blobs, rendezvous, meeting)
    return 1 if shell.fault and shell.controller.config is None else 0


def _dashboard_url(scheduler: Any) -> str:
    """Return the URL of Dask's dashboard."""
    host = scheduler.address.rpartition("://")[2].rpartition(":")[0]
    return f"http://{host}:{scheduler.http_server.port}/status"


async def _checkpoint_before_the_end(shell: ControllerShell) -> None:
    """Save a checkpoint when the lease of this machine ends soon, because no tick extends it, or the budget ends."""
    from infra.clock import open_clock
    from infra.nodes.lease_guard import MachineFiles
    from infra.settings import load_settings
    from infra.storage.leases import ENDING_S, utc

    files, clock, saved_for_s = MachineFiles.ours(), open_clock(load_settings().clock), 0.0
    while True:
        await asyncio.sleep(_LEASE_LOOK_S)
        lease = files.known_lease()  # None: no guard watches this process (`proteus train`)
        if lease is None or lease.is_last or lease.until_s == saved_for_s:
            continue
        if clock.now_s() < lease.until_s - ENDING_S:
            continue
        why = "the job's budget lasts no longer" if lease.is_cut else "no tick extends its lease"
        logger.warning("this machine ends at %s, for %s: saving a checkpoint", utc(lease.until_s), why)
        answer = await shell.checkpoint()
        if answer["error"]:
            logger.error("the checkpoint failed and is tried again: %s", answer["error"])
        else:
            saved_for_s = lease.until_s
            logger.info("the job can go on from its checkpoint of clock %d", answer["clock"])


def _withdraw(blobs: Blobs, rendezvous: str, meeting: dict[str, Any]) -> None:
    """Remove this controller's address; a successor's address stays."""
    if blobs.exists(rendezvous) and blobs.read_json(rendezvous) == meeting:
        blobs.remove(rendezvous)


def _callbacks(blobs: Blobs, code: JobCode, job_id: str) -> ControllerCallbacks:
    from infra.applications.trained_models import find_result, save_model
    from infra.clock import SystemClock
    from infra.ec2 import notice_poller
    from infra.settings import load_settings
    from infra.storage.checkpoints import find_checkpoint, save_checkpoint
    from infra.storage.event_logs import keep_page
    from infra.storage.job_paths import HELD_OUT
    from psengine.shell.callbacks import ControllerCallbacks

    def read_heldout(data_url: str) -> Mapping[str, NDArray[np.generic]]:
        return _open(data_url).read_npz(HELD_OUT)

    def report_notice(about: Mapping[str, Any]) -> None:
        events_url = load_settings().events_url
        if events_url is not None:
            notice_poller.report_notice(events_url, about)

    return ControllerCallbacks(
        read_heldout,
        partial(save_model, blobs),
        partial(find_result, blobs),
        SystemClock().now_s,
        report_notice,
        partial(save_checkpoint, blobs),
        partial(find_checkpoint, blobs),
        code.load,
        partial(keep_page, blobs, job_id, SystemClock().now_s()),
    )


# -- a node ---------------------------------------------------------------------------------------------------------


async def _node(options: argparse.Namespace, blobs: Blobs, rendezvous: str, stop: asyncio.Event, code: JobCode) -> int:
    from distributed import Worker

    from infra.nodes.open_files import raise_file_limit
    from infra.storage.blobs import BlobError, DamagedSet
    from infra.version import program_version
    from psengine.shell.dask_plugins import AgentPlugin, hello

    generation = 0
    while not stop.is_set():
        address = await _meet(blobs, rendezvous, stop)
        if address is None:
            return 0
        try:
            code_sha256 = await asyncio.to_thread(code.digest)
        except DamagedSet:
            raise  # the node cannot join with that; the supervisor retries with growing delays
        except BlobError as error:  # a temporary fault of the store
            logger.warning("%s", error)
            await _first(stop.wait(), asyncio.sleep(1.0))
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
                await _first(stop.wait(), asyncio.sleep(1.0))
                continue
            logger.info("node %s joined %s as %s", options.name, address, worker.address)
            polling = asyncio.create_task(_watch_notices(options, plugin, address))
            await _first(stop.wait(), worker.finished())  # type: ignore[no-untyped-call]
            await cancel_all([polling])  # its errors were logged when they happened
            await worker.close(executor_wait=False)
        if plugin.fault:
            logger.error("a fault in the node: %s", plugin.fault)
            return 1
        if plugin.close_requested:
            logger.info("closed by the controller")
            return 0
        if not stop.is_set():
            logger.warning("lost the controller at %s; looking for it again", address)
    return 0


async def _meet(blobs: Blobs, rendezvous: str, stop: asyncio.Event) -> str | None:
    """Return the controller's address once it accepts connections; None on `stop`.

    Raises
    ------
    InputError
        If the controller speaks another protocol: both versions, and the mend.
    """
    from infra.errors import InputError
    from infra.storage.blobs import BlobError, BlobMissing
    from infra.version import program_version
    from psengine.protocol.version import PROTOCOL, version_misfit

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
        await _first(stop.wait(), asyncio.sleep(pause_s))
    return None


def _load(data_url: str, partition: int) -> Mapping[str, NDArray[np.generic]]:
    from infra.storage.blobs import BlobMissing
    from infra.storage.job_paths import part_name
    from psengine.config import JobError

    try:
        return _open(data_url).read_npz(part_name(partition))
    except BlobMissing as error:  # a store that is away raises another error
        raise JobError(str(error)) from error


def _load_shard(blobs: Blobs, checkpoint: str, shard: int) -> Mapping[str, NDArray[np.generic]]:
    from infra.storage.checkpoints import read_shard

    return read_shard(blobs, checkpoint, shard)


def _load_state(blobs: Blobs, checkpoint: str, executor: int) -> Mapping[str, NDArray[np.generic]]:
    from infra.storage.checkpoints import read_state

    return read_state(blobs, checkpoint, executor)


async def _watch_notices(options: argparse.Namespace, plugin: AgentPlugin, controller: str) -> None:
    """Poll the metadata service for an eviction notice, and send the first one until the controller has received it."""
    if options.tier != "transient" or options.no_notices:
        return
    assert plugin.agent is not None
    transport = plugin.agent.transport
    try:
        poller = await asyncio.to_thread(_poller)  # its imports are slow, and the node works already
        try:
            while (notice := await poller.poll()) is None:
                await asyncio.sleep(options.poll_s)
        finally:
            await poller.close()
        logger.info("notice: %s in %.1f s", notice.action, notice.seconds_left)
        allocation = os.environ.get("PROTEUS_ALLOCATION")
        about = allocation and {
            "job_id": options.job,
            "allocation_id": allocation,
            "instance_id": options.name,
            "takes_at_s": int(notice.at.timestamp()),
        }
        await _send_notice(transport, controller, options.name, notice.seconds_left, about or None)
    except Exception:
        logger.exception("polling for eviction notices has failed; this node will not report one")
        raise


def _poller() -> NoticePoller:
    from infra.ec2.notice_poller import NoticePoller

    return NoticePoller()


async def _send_notice(
    transport: Transport, controller: str, node: str, seconds_left: float, about: dict[str, Any] | None
) -> None:
    from psengine.rpc.transport import Unreachable

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


async def _first(*waits: Any) -> None:
    """Return when one of `waits` has completed; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancel_all(tasks)


if __name__ == "__main__":
    sys.exit(main())
