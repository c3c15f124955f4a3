"""The process that a machine runs: `python -m infra.nodes.main --job ID --blob URL --name INSTANCE --tier reliable|transient`.

Without `--controller` it is a node: one Dask worker with the engine's agent. With it, it is the job's controller: Dask's
scheduler and the engine's controller, nothing else; the first reliable node runs both, as two processes, so that a kernel
never holds the controller up. They meet through the blob store: the controller writes its address to
`jobs/<id>/rendezvous.json`, nodes poll until it is there and read it again when the scheduler goes. What either says is
kept there too (`node_logs`).

Exit code 0: told to close, or ended by SIGTERM. 1: failed. 2: bad options. 3: nobody was met in `--patience-s`. The
supervisor in the user-data starts anew whatever does not end with 0.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psengine.rpc.cancellation import cancel_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from infra.applications.code_shipping import JobCode
    from infra.ec2.notice_poller import NoticePoller
    from infra.storage.blobs import Blobs
    from psengine.rpc.transport import Transport
    from psengine.shell.controller_shell import ControllerCallbacks, ControllerShell
    from psengine.shell.dask_plugins import AgentPlugin

logger = logging.getLogger("infra.nodes.main")

_LOOK_S = 0.1
#: A controller that is not there within so many seconds is not about to be: from then on it is looked for seldom.
_SOON_S = 10.0
_SELDOM_S = 2.0
_CALL_S = 5.0
_ALIVE_S = 30.0

#: one kernel thread each: a node's threads are its micro-tasks, and a library's own would only get in their way
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

#: what differs from Dask's defaults, which are made for long-lived clusters
DASK_CONFIG: dict[str, Any] = {
    "distributed.comm.timeouts.connect": "2s",  # a dead address is told in 2 s, not 30
    "distributed.comm.offload": False,
    "distributed.comm.compression": False,
    "distributed.comm.shard": "64GiB",  # an array is one frame: the parts of one that was cut are copied together
    "distributed.scheduler.worker-ttl": None,  # who is silent is seen by psengine.membership.failure_detector, a slow one is given time
    "distributed.scheduler.allowed-failures": 1000000,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.tick.interval": "1s",  # what only watches costs the kernels no more than it must
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.active-memory-manager.start": False,  # nothing of ours is in Dask's memory
    "logging": {"distributed": "warning"},
}


#: what Dask's pages link to, where they are asked for
DASHBOARD_ROUTES = ["distributed.http.scheduler.info", "distributed.http.health", "distributed.http.statics"]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(prog="python -m infra.nodes.main", description="A node of a training job.")
    parser.add_argument("--job", required=True, help="job id")
    parser.add_argument("--blob", required=True, help="fsspec URL of the blob store")
    parser.add_argument("--name", required=True, help="instance id")
    parser.add_argument("--tier", choices=("reliable", "transient"), required=True)
    parser.add_argument("--threads", type=int, default=1, help="micro-tasks that run at one time")
    parser.add_argument("--controller", action="store_true", help="be the controller, and no node")
    parser.add_argument("--dashboard", action="store_true", help="the controller serves Dask's dashboard")
    parser.add_argument("--host", default=os.environ.get("PROTEUS_NODE_HOST"), help="address to listen on")
    parser.add_argument("--poll-s", type=float, default=5.0, help="real seconds between looks for a notice")
    parser.add_argument("--no-notices", action="store_true", help="do not ask the metadata service")
    parser.add_argument("--patience-s", type=float, default=600.0, help="how long a controller is looked for")
    options = parser.parse_args(arguments)
    if options.threads < 1:
        parser.error(f"--threads {options.threads}: must be at least 1")
    if options.poll_s <= 0:
        parser.error(f"--poll-s {options.poll_s}: must be above 0")
    return options


def set_up() -> None:
    """Set what libraries read when they are imported, NumPy and `distributed` among them: call it before."""
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would tell of every look for a notice
    logging.captureWarnings(True)
    faulthandler.enable()
    import dask

    dask.config.set(DASK_CONFIG)


def main(arguments: list[str] | None = None) -> int:
    """Run until told to end; return the exit code."""
    options = parse(arguments)
    set_up()
    from infra.errors import ProteusError
    from infra.nodes.malloc import retain_freed_memory
    from infra.storage.node_logs import kept_logs

    retain_freed_memory()
    role = "controller" if options.controller else "node"
    with kept_logs(options.job, options.name, role, lambda: _open(options.blob)):
        try:
            return asyncio.run(_run(options))
        except ProteusError as error:
            logger.error("%s", error)
            return error.exit_code
        except Exception:  # told here, while the log is kept
            logger.exception("a fault in the program")
            return 1


async def _run(options: argparse.Namespace) -> int:
    from infra.applications.code_shipping import JobCode
    from infra.storage.job_paths import JobPaths

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    blobs, rendezvous = _open(options.blob), JobPaths(options.job).rendezvous
    work = _controller if options.controller else _node
    with tempfile.TemporaryDirectory(prefix="proteus-code-") as place:
        return await work(options, blobs, rendezvous, stop, JobCode(blobs, options.job, Path(place)))


def _open(url: str) -> Blobs:
    """Return the blobs under `url`, reached as the settings say (a bucket's region)."""
    from infra.settings import load_settings
    from infra.storage.blobs import open_blobs

    return open_blobs(load_settings().model_copy(update={"blob_url": url}))


# -- the controller -------------------------------------------------------------------------------------------------


async def _controller(
    options: argparse.Namespace, blobs: Blobs, rendezvous: str, stop: asyncio.Event, code: JobCode
) -> int:
    from distributed import Scheduler

    from psengine.shell.controller_shell import ControllerShell

    if options.dashboard:
        import dask

        dask.config.set({"distributed.scheduler.http.routes": DASHBOARD_ROUTES})
    # Dask's pages are as open as its port is; on a machine of one's own they are for this machine alone.
    pages = f"{options.host or ''}:0"
    async with Scheduler(host=options.host, port=0, dashboard=options.dashboard, dashboard_address=pages) as scheduler:
        shell = ControllerShell(scheduler, _world(blobs, code, options.job))
        shell.open()
        meeting = {"address": scheduler.address, "job_id": options.job, "name": options.name, "pid": os.getpid()}
        if options.dashboard:
            meeting["dashboard"] = _dashboard_url(scheduler)
        await asyncio.to_thread(blobs.write_json, rendezvous, meeting)
        logger.info("controller of job %s at %s", options.job, scheduler.address)
        await _first(stop.wait(), shell.closing.wait(), _show_life(shell))
        await shell.close()
        await asyncio.to_thread(_withdraw, blobs, rendezvous, meeting)
    return 0


def _dashboard_url(scheduler: Any) -> str:
    """Return the address of the pages of Dask's dashboard."""
    host = scheduler.address.rpartition("://")[2].rpartition(":")[0]
    return f"http://{host}:{scheduler.http_server.port}/status"


async def _show_life(shell: ControllerShell) -> None:
    """Keep the machine's dead-man timer from running out while the job goes on, or somebody asks after it."""
    from psengine.controller.state import ENDED

    path = os.environ.get("PROTEUS_ALIVE_FILE")
    asked, complained = 0, False
    while True:
        await asyncio.sleep(_ALIVE_S)
        if path and (shell.asked != asked or shell.controller.state not in ENDED):
            try:
                Path(path).touch()
                complained = False
            except OSError as error:  # a full disk is no reason to end a training that needs none
                if not complained:
                    logger.error("no sign of life can be given at %s: %s", path, error)
                complained = True
        asked = shell.asked


def _withdraw(blobs: Blobs, rendezvous: str, meeting: dict[str, Any]) -> None:
    """Take our own address back; a successor's stays."""
    if blobs.exists(rendezvous) and blobs.read_json(rendezvous) == meeting:
        blobs.remove(rendezvous)


def _world(blobs: Blobs, code: JobCode, job_id: str) -> ControllerCallbacks:
    from infra.applications.trained_models import find_result, save_model
    from infra.clock import SystemClock
    from infra.storage.checkpoints import find_checkpoint, save_checkpoint
    from infra.storage.event_logs import keep_page
    from infra.storage.job_paths import HELD_OUT
    from psengine.shell.controller_shell import ControllerCallbacks

    def read_heldout(data_url: str) -> Mapping[str, NDArray[np.generic]]:
        return _open(data_url).read_npz(HELD_OUT)

    def report_notice(about: Mapping[str, Any]) -> None:
        from infra.ec2.notice_poller import report_notice
        from infra.settings import load_settings

        events_url = load_settings().events_url
        if events_url is not None:
            report_notice(events_url, about)

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

    from infra.storage.blobs import BlobError, DamagedSet
    from psengine.shell.dask_plugins import AgentPlugin, hello

    generation = 0
    while not stop.is_set():
        address = await _meet(blobs, rendezvous, options.patience_s, stop)
        if address is None:
            return 0 if stop.is_set() else 3
        try:
            code_sha256 = await asyncio.to_thread(code.digest)
        except DamagedSet:
            raise  # nothing is joined with that; the supervisor tries again, ever more slowly
        except BlobError as error:  # the store has a bad moment
            logger.warning("%s", error)
            await _first(stop.wait(), asyncio.sleep(1.0))
            continue
        generation += 1
        plugin = AgentPlugin(options.name, options.threads, _load, partial(_load_shard, blobs))
        with tempfile.TemporaryDirectory(prefix="proteus-node-") as scratch:
            worker = Worker(
                address,
                nthreads=options.threads,
                name=f"{options.name}#{os.getpid()}.{generation}",  # Dask refuses a name while its predecessor lingers
                host=options.host,
                memory_limit=0,
                death_timeout=_CALL_S,
                local_directory=scratch,
                plugins=(plugin,),
                startup_information=hello(options.name, options.tier, options.threads, code_sha256),
                dashboard=False,
            )
            try:
                await worker
            except (OSError, ValueError) as error:  # nobody at that address any more, or it would not have us
                logger.warning("cannot join %s: %s", address, error)
                await worker.close(executor_wait=False)
                await _first(stop.wait(), asyncio.sleep(1.0))
                continue
            logger.info("node %s joined %s as %s", options.name, address, worker.address)
            polling = asyncio.create_task(_watch_notices(options, plugin, address))
            await _first(stop.wait(), worker.finished())  # type: ignore[no-untyped-call]
            await cancel_all([polling])  # what went wrong was logged when it did
            await worker.close(executor_wait=False)
        if plugin.told_to_close:
            logger.info("told to close")
            return 0
        if not stop.is_set():
            logger.warning("the controller at %s is gone; looking for it again", address)
    return 0


async def _meet(blobs: Blobs, rendezvous: str, patience_s: float, stop: asyncio.Event) -> str | None:
    """Return the controller's address as soon as somebody listens there; None at the end of patience, or of us."""
    from infra.storage.blobs import BlobError, BlobMissing

    loop = asyncio.get_running_loop()
    began = loop.time()
    while not stop.is_set() and (waited_s := loop.time() - began) < patience_s:
        try:
            address = str((await asyncio.to_thread(blobs.read_json, rendezvous))["address"])
            host, _, port = address.rpartition("://")[2].rpartition(":")
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), 2.0)
        except (BlobMissing, OSError):
            pause_s = _LOOK_S
        except BlobError as error:  # the store has a bad moment
            logger.warning("%s", error)
            pause_s = 5 * _LOOK_S
        else:
            writer.close()
            return address
        if waited_s >= _SOON_S:
            pause_s = _SELDOM_S
        await _first(stop.wait(), asyncio.sleep(min(pause_s, patience_s - waited_s)))
    return None


def _load(data_url: str, partition: int) -> Mapping[str, NDArray[np.generic]]:
    from infra.storage.job_paths import part_name

    return _open(data_url).read_npz(part_name(partition))


def _load_shard(blobs: Blobs, checkpoint: str, shard: int) -> Mapping[str, NDArray[np.generic]]:
    from infra.storage.checkpoints import read_shard

    return read_shard(blobs, checkpoint, shard)


async def _watch_notices(options: argparse.Namespace, plugin: AgentPlugin, controller: str) -> None:
    """Ask the metadata service for an eviction notice, and pass the first one on until somebody took it."""
    if options.tier != "transient" or options.no_notices:
        return
    assert plugin.agent is not None
    transport = plugin.agent.transport
    try:
        poller = await asyncio.to_thread(_poller)  # its imports take longer than ours, and the node works already
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
            "takes_at_s": int(notice.at.timestamp()),
        }
        await _pass_on(transport, controller, options.name, notice.seconds_left, about or None)
    except Exception:
        logger.exception("nobody looks for eviction notices on this node any more")
        raise


def _poller() -> NoticePoller:
    from infra.ec2.notice_poller import NoticePoller

    return NoticePoller()


async def _pass_on(
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
    """Return when one of `waits` is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancel_all(tasks)


if __name__ == "__main__":
    sys.exit(main())
