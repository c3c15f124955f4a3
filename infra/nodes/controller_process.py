"""The process of a job's controller: Dask's scheduler and the engine's controller, nothing else.

It is imported after `infra.nodes.main.set_up`, which sets what its libraries read at import.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import dask
import numpy as np
from distributed import Scheduler
from numpy.typing import NDArray

from proteus_spot.infra.applications.code_shipping import JobCode
from proteus_spot.infra.applications.trained_models import find_best, find_result, keep_best, save_model
from proteus_spot.infra.clock import SystemClock, open_clock
from proteus_spot.infra.ec2 import notice_poller
from proteus_spot.infra.nodes.keys import job_key
from proteus_spot.infra.nodes.lease_guard import MachineFiles
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import Blobs, blobs_of_process
from proteus_spot.infra.storage.checkpoints import find_checkpoints, save_checkpoint
from proteus_spot.infra.storage.event_logs import keep_page
from proteus_spot.infra.storage.job_paths import HELD_OUT
from proteus_spot.infra.storage.leases import ENDING_S, utc
from proteus_spot.infra.tls.job_keys import CONTROLLER, HEAD, dask_security, server_context
from proteus_spot.infra.version import program_version
from proteus_spot.psengine.protocol.protocol_version import PROTOCOL
from proteus_spot.psengine.rpc.cancellation import first_of
from proteus_spot.psengine.shell.callbacks import ControllerCallbacks
from proteus_spot.psengine.shell.control_port import ControlPort
from proteus_spot.psengine.shell.controller_shell import ControllerShell

logger = logging.getLogger("proteus_spot.infra.nodes.controller_process")

_LEASE_LOOK_S = 0.5
#: Routes that Dask's dashboard pages need.
DASHBOARD_ROUTES = ["distributed.http.scheduler.info", "distributed.http.health", "distributed.http.statics"]


async def run_controller(
    options: argparse.Namespace, blobs: Blobs, rendezvous: str, stop: asyncio.Event, code: JobCode
) -> int:
    """Run the job's controller until it closes or `stop` is set; return the exit code.

    Parameters
    ----------
    options : those of `infra.nodes.main`.
    blobs : the blob store of the job.
    rendezvous : blob to which the controller writes its address; it is removed at the end.
    code : the job's own code.
    """
    if options.dashboard:
        dask.config.set({"distributed.scheduler.http.routes": DASHBOARD_ROUTES})
    # The dashboard listens where the scheduler does; on a local run that is the loopback address.
    pages = f"{options.host or ''}:0"
    key = await job_key(options, blobs, CONTROLLER, stop)
    if stop.is_set():
        return 0
    async with Scheduler(
        host=options.host,
        port=0,
        protocol="tcp" if key is None else "tls",
        security=None if key is None else dask_security(key),
        dashboard=options.dashboard,
        dashboard_address=pages,
    ) as scheduler:
        shell = ControllerShell(scheduler, _callbacks(blobs, code, options.job), version=program_version())
        shell.open()
        control = ControlPort(shell.control)
        host = scheduler.address.rpartition("://")[2].rpartition(":")[0]
        listens = options.host or ("::" if host.startswith("[") else "0.0.0.0")
        port = await control.open(listens, *(() if key is None else (server_context(key), HEAD)))
        address = f"tcp://{host}:{port}" if key is None else f"tls://{host}:{port}/{options.job}"
        meeting = {"address": scheduler.address, "job_id": options.job, "name": options.name, "pid": os.getpid()}
        meeting |= {"control": address, "protocol": PROTOCOL, "version": program_version()}
        if options.dashboard:
            meeting["dashboard"] = _dashboard_url(scheduler)
        await asyncio.to_thread(blobs.write_json, rendezvous, meeting)
        logger.info("controller of job %s at %s", options.job, scheduler.address)
        await first_of(stop.wait(), shell.closing.wait(), _checkpoint_before_the_end(shell))
        control.close()
        await shell.close()
        await asyncio.to_thread(_withdraw, blobs, rendezvous, meeting)
    return 1 if shell.fault and shell.controller.job.config is None else 0


def _dashboard_url(scheduler: Any) -> str:
    """Return the URL of Dask's dashboard."""
    host = scheduler.address.rpartition("://")[2].rpartition(":")[0]
    return f"http://{host}:{scheduler.http_server.port}/status"


async def _checkpoint_before_the_end(shell: ControllerShell) -> None:
    """Save a checkpoint when the lease of this machine ends soon, because no tick extends it, or the budget ends."""
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
    def read_heldout(data_url: str) -> Mapping[str, NDArray[np.generic]]:
        return blobs_of_process(data_url).read_npz(HELD_OUT)

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
        partial(find_checkpoints, blobs),
        code.load,
        partial(keep_page, blobs, job_id, SystemClock().now_s()),
        keep_best=partial(keep_best, blobs),
        find_best=partial(find_best, blobs),
    )
