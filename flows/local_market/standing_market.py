"""`proteus up`: all deployments on this machine, over a generated market, until a signal ends it.

A Prefect server, a worker and the simulated market are processes of their own. Ticks, renewals and eviction notices are
kept by this process, as `proteus run` does; `train` and what a user starts in the UI go through the worker.
"""

import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.flows.local_market.job_threads import (
    FLOW_LATENCY_S,
    HISTORY_DAYS,
    SCALE,
    TOUCHES,
    MarketTicks,
    Periodic,
    in_thread,
    measured_latency_s,
)
from proteus_spot.flows.terminal.interrupts import Interrupted, Interrupts
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.local_market.environment import LocalEnvironment, own_directory
from proteus_spot.infra.local_market.prefect_server import kept_port
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.tasks.local_market.run_checks import (
    check_database,
    check_directory,
    check_finite,
    check_place,
    check_settings,
    kept_scale,
    note_place,
)
from proteus_spot.tasks.local_market.run_environment import (
    forget_claims,
    last_market_s,
    local_settings,
    make_database,
    opened_environment,
)
from proteus_spot.tasks.local_market.standing import (
    UP_DIRECTORY,
    announcement_of,
    check_up,
    deployments_of,
    standing_market,
)

#: Market seconds between two calls of the reaper, and of the price ingestion: as prefect.yaml schedules them.
_REAP_S = 600.0
_INGEST_S = 3600.0
_NEEDED_BYTES = 64 * 2**20
_LOOK_S = 0.5
#: Maximum real seconds to save the models, and for a running tick to end, when it is ended.
_PAUSE_S = 6.0
_TICK_ENDS_S = 1.0


def local_up(
    directory: Path | None,
    scale: float | None,
    seed: int | None,
    port: int | None,
    interrupts: Interrupts,
    say: Callable[[str], None],
    ready: Callable[[Mapping[str, Any]], None],
) -> None:
    """Keep the deployments running until a signal ends this process; everything it started ends with it.

    Parameters
    ----------
    directory, scale, seed, port : as the options of `proteus up`.
    say : receives lines for the user.
    ready : receives the addresses, once jobs can be submitted.

    Raises
    ------
    InputError
        If an option is invalid, before anything is started or written.
    Interrupted
        When a signal has asked to end, after everything has ended.
    """
    check_finite("--scale", scale)
    directory = (directory or UP_DIRECTORY).absolute()
    again = proteus_command("up", "--dir", str(directory))
    settings = local_settings(directory, scale or SCALE)
    url = settings["PROTEUS_DATABASE_URL"]
    fastest = scale or kept_scale(settings, SCALE, FLOW_LATENCY_S)
    check_settings(settings, fastest, FLOW_LATENCY_S)
    check_directory("--dir", directory, _NEEDED_BYTES)
    check_up(port)
    market = standing_market(directory, seed, HISTORY_DAYS)
    check_database(url)
    with own_directory(directory):
        check_place(directory, url)
        make_database(url)
        note_place(directory)
        forget_claims(url)
        market.write()
        say(f"starting a Prefect server, a worker and a market on this machine; state in {directory}")
        made = LocalEnvironment(
            directory=directory,
            prices=market.file.path,
            catalog=None,
            start_s=last_market_s(directory, url, market.file.start_s),
            scale=fastest,
            notice_s=120,
            port=kept_port(directory / "prefect-port", port),
            auth=f"proteus:{secrets.token_urlsafe(16)}",
        )
        with opened_environment(made, settings) as world:
            say(f"Prefect UI: {world.prefect.ui_url}")
            say(f"the UI asks for: {world.prefect.auth}")
            exports = f"PREFECT_API_URL={world.prefect.api_url} PREFECT_API_AUTH_STRING={world.prefect.auth}"
            say(f"for Prefect's own commands: export {exports}")
            with _pausing(again, interrupts), deployments_of(world, os.environ.copy()) as deployments:
                tick_takes_s = TOUCHES * measured_latency_s()
                if scale is None:
                    scale = kept_scale(settings, fastest, tick_takes_s)
                    world.clock.run_at(scale)
                check_settings(settings, scale, tick_takes_s)
                say(f"scale: {scale:g} market seconds a second")
                from proteus_spot.tasks.local_market.pause import resume_jobs
                from proteus_spot.tasks.sweeps.sweep_submission import resume_sweeps

                with announcement_of(world, market) as announcement:
                    for job_id in [*resume_jobs(), *resume_sweeps()]:
                        say(f"{job_id}: goes on")
                    ready(announcement)
                    _keep(world.clock, partial(_check, world.prefect.check, deployments.check), say)


def _check(*servers: Callable[[], None]) -> None:
    for server in servers:
        server()


def _keep(clock: ScaledClock, check: Callable[[], None], say: Callable[[str], None]) -> None:
    """Call ticks, the reaper and the price ingestion at their market times, until a signal or an error of `check`."""
    from proteus_spot.flows.ingest_prices import ingest_prices
    from proteus_spot.flows.reap import reap
    from proteus_spot.tasks.job_records import ticking_jobs
    from proteus_spot.tasks.local_market.pause import job_states

    done = threading.Event()
    periodic = (Periodic(_REAP_S, reap), Periodic(_INGEST_S, ingest_prices))
    ticks = MarketTicks(clock, say, ticking_jobs, periodic=periodic)
    ticking = in_thread("tick", partial(ticks.until, done))
    shown = job_states()  # what ended before, or goes on, was said before
    try:
        while not ticking.done():
            check()
            for job_id, state in job_states().items():
                if shown.get(job_id) != state:
                    say(f"{job_id}: {state}")
                    shown[job_id] = state
            wait([ticking], timeout=_LOOK_S)
        ticking.result()
    finally:
        done.set()
        wait([ticking], timeout=_TICK_ENDS_S)


@contextmanager
def _pausing(again: str, interrupts: Interrupts) -> Iterator[None]:
    """Save the models of open jobs before the market ends, if an error or a signal ends the context."""
    try:
        yield
    except (Exception, Interrupted) as error:
        interrupts.hold()
        from proteus_spot.tasks.local_market.pause import pause_jobs

        pausing = in_thread("pause", partial(pause_jobs, again))
        wait([pausing], timeout=_PAUSE_S)
        if isinstance(error, Interrupted):
            saved = pausing.done() and pausing.exception() is None
            error.outcome = pausing.result() if saved else f"nothing is left running; to go on: {again}"
        raise
