"""The process that a trial's machine runs: the supervisor of one deployment.

`python -m proteus_spot.infra.nodes.trial_main`. Run it with `--job SWEEP --trial N --deployment ORDER --blob URL --name
INSTANCE`. It trains until the trial ends, is paused or noticed, uploads the last state, writes the last report, and
ends; the start script then ends the machine. It does not end a machine that was noticed: a machine that the market
takes is not paid for, one that ends itself is.

Exit code 0: the deployment has ended, or SIGTERM came. 1: failed. 2: bad options. The start script restarts a process
that ends with another code than 0; the deployment then goes on from its newest uploaded state.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

from proteus_spot.infra.clock import Clock, open_clock
from proteus_spot.infra.ec2.notice_poller import NoticePoller
from proteus_spot.infra.nodes.lease_guard import MachineFiles
from proteus_spot.infra.nodes.logged_process import exit_code, log_to_console
from proteus_spot.infra.processes.surroundings import settle
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import open_blobs
from proteus_spot.infra.storage.leases import ENDING_S, utc
from proteus_spot.infra.storage.node_logs import stored_logs
from proteus_spot.infra.trials.supervisor import TrialJob, TrialSupervisor

logger = logging.getLogger("proteus_spot.infra.nodes.trial_main")

#: Market seconds after a notice within which the machine should be gone.
_TAKEN_S = 600.0
#: Real seconds between two looks at the lease.
_LEASE_LOOK_S = 0.5


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(
        prog="python -m proteus_spot.infra.nodes.trial_main", description="A machine of a trial."
    )
    parser.add_argument("--job", required=True, help="sweep id")
    parser.add_argument("--trial", type=int, required=True, help="number of the trial, from 0")
    parser.add_argument("--deployment", required=True, help="order id")
    parser.add_argument("--blob", required=True, help="fsspec URL of the blob store")
    parser.add_argument("--name", required=True, help="instance id")
    parser.add_argument("--threads", type=int, default=0, help="threads of numeric libraries; 0: their own choice")
    parser.add_argument("--poll-s", type=float, default=5.0, help="real seconds between polls for a notice and orders")
    parser.add_argument("--no-notices", action="store_true", help="do not poll the metadata service")
    options = parser.parse_args(arguments)
    if options.trial < 0:
        parser.error(f"--trial {options.trial}: trials count from 0")
    if options.threads < 0:
        parser.error(f"--threads {options.threads}: must be at least 0")
    if not options.poll_s > 0:
        parser.error(f"--poll-s {options.poll_s}: must be above 0")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Supervise the deployment until it ends; return the exit code."""
    options = parse(arguments)
    settle()
    log_to_console()
    settings = load_settings().model_copy(update={"blob_url": options.blob})
    with stored_logs(options.job, options.name, "node", lambda: open_blobs(settings)):
        return exit_code(lambda: _run(options), logger)


async def _run(options: argparse.Namespace) -> int:
    settings = load_settings()
    clock = open_clock(settings.clock)
    blobs = open_blobs(settings.model_copy(update={"blob_url": options.blob}))
    job = TrialJob(
        options.job,
        options.trial,
        options.deployment,
        options.threads,
        options.poll_s,
        60.0 * settings.progress_minutes,
        settings.notice_s,
    )
    poller = None if options.no_notices else NoticePoller(clock=clock)

    async def poll_notice() -> float | None:
        assert poller is not None
        notice = await poller.poll()
        return None if notice is None else notice.seconds_left

    supervisor = TrialSupervisor(job, blobs, clock, None if poller is None else poll_notice)
    terminated = asyncio.Event()

    def terminate() -> None:
        terminated.set()
        supervisor.stop("SIGTERM")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminate)
    watching = asyncio.create_task(_stop_before_the_end(supervisor, clock))
    try:
        await supervisor.run()
    finally:
        watching.cancel()
        if poller is not None:
            await poller.close()
    if supervisor.is_noticed:
        try:
            await asyncio.wait_for(terminated.wait(), _TAKEN_S / clock.scale)
        except TimeoutError:
            logger.warning("the machine was noticed and is still on; it ends now")
    return 0


async def _stop_before_the_end(supervisor: TrialSupervisor, clock: Clock) -> None:
    """Stop the trial when the lease of this machine ends soon, because no tick extends it."""
    files = MachineFiles.ours()
    while True:
        lease = files.known_lease()  # None: no guard watches this process
        if lease is not None and clock.now_s() >= lease.until_s - ENDING_S:
            supervisor.stop(f"no tick extends the lease of its machine, which ends at {utc(lease.until_s)}")
            return
        await asyncio.sleep(_LEASE_LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
