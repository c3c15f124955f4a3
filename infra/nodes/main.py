"""The process that a machine runs: a node of a training job, or the job's controller.

Run it as `python -m proteus_spot.infra.nodes.main --job ID --blob URL --name INSTANCE --tier reliable|transient`.
Without `--controller` it is a node: one Dask worker with the engine's agent. With it, it is the job's controller:
Dask's scheduler and the engine's controller, nothing else. The first reliable node runs both, as two processes, so that
a kernel never delays the controller. They meet through the blob store: the controller writes its address to
`jobs/<id>/rendezvous.json`; nodes poll for it, and read it again when the scheduler was lost. The logs of both are
stored there too (`node_logs`).

A node looks for the controller until it is ended: by the guard of its machine, at the latest (`lease_guard`).

Exit code 0: closed by the controller, or ended by SIGTERM. 1: failed. 2: bad options. 3: another job of the queue has
taken the machine over; the process starts again for that one. The supervisor in the user-data restarts a process that
ends with another code than 0.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from proteus_spot.infra.nodes.logged_process import exit_code, log_to_console

logger = logging.getLogger("proteus_spot.infra.nodes.main")

#: Exit code of a process whose machine works for another job from now on, and seconds between two looks at that.
MOVED = 3
_JOB_LOOK_S = 0.5

#: Set to 1: a node's threads run tasks, and a library's own threads would compete with them.
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


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(
        prog="python -m proteus_spot.infra.nodes.main", description="A node of a training job."
    )
    parser.add_argument("--job", required=True, help="job id")
    parser.add_argument("--blob", required=True, help="fsspec URL of the blob store")
    parser.add_argument("--name", required=True, help="instance id")
    parser.add_argument("--tier", choices=("reliable", "transient"), required=True)
    parser.add_argument("--threads", type=int, default=1, help="number of tasks that run at a time")
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
    from proteus_spot.infra.nodes.cpu_kernels import kernel_environment
    from proteus_spot.infra.processes.surroundings import settle
    from proteus_spot.infra.settings import load_settings

    settle()
    os.environ.update(kernel_environment(load_settings().cpu_kernels))
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    log_to_console()
    logging.captureWarnings(True)
    import dask

    dask.config.refresh(paths=[], env={})  # nor what its environment of Python has
    dask.config.set(DASK_CONFIG)


def main(arguments: list[str] | None = None) -> int:
    """Run the node or controller until it is closed; return the exit code."""
    from proteus_spot.infra.errors import ProteusError

    options = parse(arguments)
    try:
        set_up()
    except ProteusError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    from proteus_spot.infra.nodes.malloc import retain_freed_memory
    from proteus_spot.infra.nodes.open_files import raise_file_limit
    from proteus_spot.infra.storage.blobs import blobs_of_process
    from proteus_spot.infra.storage.node_logs import stored_logs

    retain_freed_memory()
    raise_file_limit()
    role = "controller" if options.controller else "node"
    with stored_logs(options.job, options.name, role, lambda: blobs_of_process(options.blob)):
        return exit_code(lambda: _run(options), logger)


async def _run(options: argparse.Namespace) -> int:
    from proteus_spot.infra.applications.code_shipping import JobCode
    from proteus_spot.infra.storage.blobs import blobs_of_process
    from proteus_spot.infra.storage.job_paths import JobPaths

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    blobs, rendezvous = blobs_of_process(options.blob), JobPaths(options.job).rendezvous
    if options.controller:
        from proteus_spot.infra.nodes.controller_process import run_controller as run
    else:
        from proteus_spot.infra.nodes.node_process import run_node as run
    moved = asyncio.create_task(_await_other_job(options.job, stop))
    with tempfile.TemporaryDirectory(prefix="proteus-code-") as code_directory:
        code = await run(options, blobs, rendezvous, stop, JobCode(blobs, options.job, Path(code_directory)))
    if not moved.done():
        moved.cancel()
        return code
    return MOVED


async def _await_other_job(job_id: str, stop: asyncio.Event) -> None:
    """Set `stop` when this machine works for another job: the next of the queue has taken it over."""
    from proteus_spot.infra.nodes.lease_guard import MachineFiles

    files = MachineFiles.ours()
    while (other := files.job_id()) in (None, job_id):
        await asyncio.sleep(_JOB_LOOK_S)
    logger.info("this machine works for job %s from now on: starting again for it", other)
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
