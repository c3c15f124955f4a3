"""A job or a sweep over the simulated market of this machine: its environment started, its flow run to the end.

Prefect schedules on wall time and starts a triggered flow seconds later, which is longer than a scaled tick; so the
flows that prefect.yaml schedules at scale 1 are called by the scaled clock, against a real Prefect API.
"""

import errno
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.flows.local_market.job_threads import (
    FLOW_LATENCY_S,
    HISTORY_DAYS,
    SCALE,
    TOUCHES,
    in_thread,
    measured_latency_s,
)
from proteus_spot.flows.terminal.interrupts import Interrupted, Interrupts
from proteus_spot.flows.terminal.run_view import clock_time
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.local_market.environment import LocalEnvironment, own_directory
from proteus_spot.studies.market_data.local_market import (
    MarketFile,
    check_availability,
    generated_market,
    given_market,
    write_generated,
    write_generated_capacity,
)
from proteus_spot.tasks.local_market.run_checks import (
    JobStatus,
    check_database,
    check_directory,
    check_endpoint,
    check_finite,
    check_place,
    check_settings,
    kept_scale,
    note_place,
)
from proteus_spot.tasks.local_market.run_environment import (
    environment_variables,
    forget_claims,
    local_settings,
    make_database,
    opened_environment,
    record_command,
    resume_point,
)

T = TypeVar("T")

#: Three times the bytes that the smallest run writes (Prefect server, database and market).
_NEEDED_BYTES = 32 * 2**20
#: Maximum real seconds for an interrupted run to save its state, release machines and book its costs.
_PAUSE_S = 8.0


@dataclass(frozen=True)
class LocalRun:
    """What a run over a market of this machine has besides its job or sweep.

    Attributes
    ----------
    job_id : the job or sweep that is run.
    again : the command that goes on with it.
    directory : holds the state of the run.
    scale, prices, catalog, availability, endpoint, database : as the options of the verb; None: not given.
    seed : of a generated market.
    markets : those of the price file that are bid in; none: all.
    today : whether today's rules hold: where no availability is given, it is generated.
    """

    job_id: str
    again: str
    directory: Path
    scale: float | None
    prices: Path | None
    catalog: Path | None
    availability: tuple[str, ...]
    endpoint: str | None
    database: str | None
    seed: int
    markets: tuple[str, ...] = ()
    today: bool = False

    @cached_property
    def market(self) -> MarketFile:
        """The price file; a generated one is not written yet. `InputError` if an option does not fit it."""
        if self.prices is None:
            file = generated_market(self.directory / "prices.csv.gz", self.markets, self.catalog, HISTORY_DAYS)
        else:
            file = given_market(self.prices, self.markets, self.catalog)
        if self.availability:
            check_availability(self.availability, file, self.endpoint)
        return file

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of this run and of the processes it starts."""
        return local_settings(self.directory, self.scale or SCALE, self.database, self.catalog)

    @property
    def url(self) -> str:
        """URL of the state database."""
        return self.variables["PROTEUS_DATABASE_URL"]

    def records(self) -> AbstractContextManager[None]:
        """Return a context in which this process reads the records of the run, without a server."""
        # Prefect's client needs a directory, even without a request
        return environment_variables({**self.variables, "PREFECT_HOME": str(self.directory / "prefect")})

    def check(self) -> float:
        """Refuse settings, directories and endpoints that cannot be used; return the scale to begin at."""
        check_finite("--scale", self.scale)
        scale = self.scale or kept_scale(self.variables, SCALE, FLOW_LATENCY_S)
        check_settings(self.variables, scale, FLOW_LATENCY_S)
        check_directory("--dir", self.directory, _NEEDED_BYTES)
        check_place(self.directory, self.url, self.job_id)
        if self.endpoint is None:
            need_extra("local", "a market on this machine")
        else:
            check_endpoint(self.endpoint)
        return scale


def run_on_market(
    run: LocalRun,
    hours: float,
    begun: JobStatus,
    scale: float,
    say: Callable[[str], None],
    interrupts: Interrupts,
    to_the_end: Callable[[ScaledClock], T],
) -> T:
    """Start the market and the servers of a run, and call `to_the_end`; return what it returns.

    Parameters
    ----------
    hours : how long a generated market lasts.
    begun : whether the job was begun before.
    scale : market seconds per real second, as `LocalRun.check` returned it.
    say : receives one line on each step.
    to_the_end : runs the flow and the ticks, given the clock of the market.

    Raises
    ------
    Interrupted
        If a signal asked to end, after the machines are released and the servers ended.
    """
    with _begun(run.again, begun), own_directory(run.directory), _recorded(run.url, run.job_id, run.again):
        start_s: float = run.market.start_s
        verb = "starting"
        if begun is JobStatus.PAUSED:
            start_s, before = resume_point(
                run.directory, run.url, run.job_id, run.scale, market_stays=run.endpoint is None
            )
            scale = before or scale
            if run.database is None:
                forget_claims(run.url)
            verb = f"goes on after {clock_time(start_s - run.market.start_s)} of market time; starting"
        say(f"job {run.job_id}: {verb} a Prefect API and a market on this machine; state in {run.directory}")
        say("1/4 market: its prices are written")
        make_database(run.url)
        note_place(run.directory)
        if run.prices is None and not run.market.path.exists():
            bids_decide = not (run.availability or run.today)
            write_generated(run.market, run.catalog, run.seed, hours, bids_decide=bids_decide)
        availability = run.availability
        if run.today and not availability and run.endpoint is None:
            availability = write_generated_capacity(run.market, run.directory / "capacity", run.seed, hours)
        say("2/4 Prefect: its server starts, which takes a minute or more on a busy machine")
        made = LocalEnvironment(
            directory=run.directory,
            prices=run.market.path,
            catalog=run.catalog,
            start_s=start_s,
            scale=scale,
            notice_s=120,
            endpoint_url=run.endpoint,
            availability=availability,
            availability_from_s=run.market.start_s,
        )
        with opened_environment(made, run.variables) as world:
            clock = world.clock
            say(f"Prefect UI at {world.prefect.ui_url}")
            say("3/4 ticks: one is timed")
            tick_takes_s = TOUCHES * measured_latency_s()
            if run.scale is None and begun is JobStatus.NEW:
                fastest, scale = scale, kept_scale(run.variables, scale, tick_takes_s)
                if scale < fastest:
                    clock.run_at(scale)
                    say(f"at a scale of {scale:g}, not {fastest:g}: a tick takes {tick_takes_s:.2f} s here")
            try:
                check_settings(run.variables, scale, tick_takes_s)
            except InputError as error:
                if begun is JobStatus.NEW:
                    raise
                say(f"ticks may come late, for the machine is slower than when the job was begun: {error}")
            say("4/4 job: its flow begins, and buys the first machines")
            with _pausing(run, interrupts):
                return to_the_end(clock)


@contextmanager
def _recorded(url: str, job_id: str, again: str) -> Iterator[None]:
    """Record the command that continues or repeats the job, however the context ends."""
    try:
        yield
    finally:
        if check_database(url):
            record_command(url, job_id, again)


@contextmanager
def _begun(again: str, begun: JobStatus) -> Iterator[None]:
    """Add the command that starts or continues the job to an interruption before anything is bought."""
    try:
        yield
    except Interrupted as error:
        end = "to begin again" if begun is JobStatus.NEW else "to go on"
        error.outcome = error.outcome or f"nothing was bought; {end}: {again}"
        raise


@contextmanager
def _pausing(run: LocalRun, interrupts: Interrupts) -> Iterator[None]:
    """Save the state of the job before the runtime ends, if an error or a signal ends the context."""
    try:
        yield
        interrupts.hold()
    except (Exception, Interrupted) as error:  # failed, or ended by a signal
        interrupts.hold()
        outcome = _pause(run.job_id, run.again, run.endpoint is None)
        if isinstance(error, Interrupted):
            error.outcome = outcome
        elif isinstance(error, MarketError):
            raise ProteusError(f"job {run.job_id}: the market cannot be reached ({error}); {outcome}") from error
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise ProteusError(
                f"job {run.job_id}: {error.strerror}: {error.filename or run.directory}; {outcome}"
            ) from error
        raise


def _pause(job_id: str, again: str, market_stays: bool) -> str:
    from proteus_spot.tasks.local_market.pause import pause

    pausing = in_thread("pause", partial(pause, job_id, again, market_stays))
    wait([pausing], timeout=_PAUSE_S)
    if not pausing.done() or pausing.exception() is not None:
        return f"job {job_id}: leaves nothing running, and its books could not be closed; to go on: {again}"
    return pausing.result()
