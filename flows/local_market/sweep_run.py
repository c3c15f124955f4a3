"""`proteus sweep run`: one whole sweep over the simulated market of this machine, with real machines' processes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.flows.local_market.job_threads import HISTORY_DAYS, SCALE, JobThreads
from proteus_spot.flows.local_market.market_run import MarketRun, run_on_market
from proteus_spot.flows.terminal.interrupts import Interrupts
from proteus_spot.flows.terminal.sweep_lines import SweepProgress, head_lines
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.reports.sweep_view import SweepView
from proteus_spot.studies.market_data.local_market import MarketFile, check_availability, generated_market, given_market
from proteus_spot.tasks.local_market.run_checks import (
    JobStatus,
    begun_before,
    check_database,
    check_finite,
    newest_unfinished,
)
from proteus_spot.tasks.local_market.run_environment import environment_variables, local_settings, state_urls
from proteus_spot.tasks.sweeps.given_sweep import check_asked, in_market, read_asked
from proteus_spot.tasks.sweeps.sweep_checks import check_import
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures

#: Default market hours that a generated market lasts: a sweep's end is not known before.
_HOURS = 48.0


@dataclass(frozen=True)
class SweepOptions:
    """The options of `proteus sweep run`; see its `--help`."""

    sweep_file: Path
    sweep_id: str | None = None
    market_seed: int = 0
    hours: float | None = None
    scale: float | None = None
    prices: Path | None = None
    catalog: Path | None = None
    directory: Path | None = None
    database: str | None = None
    endpoint: str | None = None
    availability: tuple[str, ...] = ()
    #: The options given, except the sweep's id and its directory, as words of a command line.
    given: tuple[str, ...] = ()


def local_sweep(options: SweepOptions, interrupts: Interrupts, quiet: bool = False) -> dict[str, Any]:
    """Run one sweep on this machine to its end; return its figures, those of an ended sweep again.

    Raises
    ------
    InputError
        If the file or an option is invalid, before anything is bought or written.
    Interrupted
        If a signal asked to end, after the machines are released and the servers ended.
    """
    began_s = SystemClock().now_s()
    check_finite("--hours", options.hours)
    check_finite("--scale", options.scale)
    unfinished = None if options.sweep_id else unfinished_sweep(options)
    spec = read_asked(options.sweep_file, options.sweep_id or unfinished).for_run(
        f"{datetime.fromtimestamp(began_s, UTC):%y%m%d%H%M%S}"
    )
    directory = (options.directory or Path("runs") / spec.job_id).absolute()
    market = _market(options, directory)
    spec = in_market(spec, market, options.catalog)
    run = MarketRun(
        job_id=spec.job_id,
        directory=directory,
        again=_again(spec.job_id, directory, options),
        variables=local_settings(directory, options.scale or SCALE, options.database, options.catalog),
        market=market,
        market_hours=options.hours or _HOURS,
        prices=options.prices,
        catalog=options.catalog,
        endpoint=options.endpoint,
        database=options.database,
        availability=options.availability,
        seed=options.market_seed,
        scale=options.scale,
    )
    scale, progress = run.check(), SweepProgress(quiet)
    begun = JobStatus.NEW
    if check_database(run.url):
        begun = begun_before(run.url, spec.job_id, spec.model_dump(mode="json"), spec.extends_recorded)
    if unfinished is not None:
        progress.say(f"{directory} holds an unfinished sweep {unfinished}; it goes on")
    if begun is JobStatus.NEW:
        check_asked(spec, options.sweep_file)
        check_import(spec, f"{options.sweep_file}: ", is_here=True)
    if begun is JobStatus.ENDED:
        progress.say(f"sweep {spec.job_id} was run to its end before; these are its figures")
        view = _ended(run)
    else:
        view = run_on_market(run, begun, scale, progress.say, interrupts, partial(_sweep, spec, progress))
    for line in head_lines(view):
        progress.say(line)
    for line in _closing_lines(spec, directory, options.database, has_best=view.best is not None):
        progress.say(line)
    return {
        **sweep_figures(view, curves=True),
        "directory": str(directory),
        "real_seconds": SystemClock().now_s() - began_s,
    }


def unfinished_sweep(options: SweepOptions) -> str | None:
    """Return the id of the sweep of this name that the named directory or database holds and that has not ended."""
    if options.directory is None and options.database is None:
        return None
    urls = state_urls(options.directory or Path(), options.database)
    return newest_unfinished(urls["PROTEUS_DATABASE_URL"], read_asked(options.sweep_file, None).sweep)


def _sweep(spec: SweepSpec, progress: SweepProgress, clock: ScaledClock) -> SweepView:
    """Run the flow of the sweep, and the ticks, to the end; return how it ended."""
    from proteus_spot.flows.sweep import sweep
    from proteus_spot.tasks.sweeps.running.following import recorded_view

    threads = JobThreads(spec.job_id, partial(sweep, spec), clock, progress, partial(recorded_view, spec.job_id))
    try:
        threads.to_the_end("the sweep has ended; its costs are booked")
    except JobFailed as error:
        progress.say(str(error))
    view = recorded_view(spec.job_id)
    assert view is not None
    return view


def _ended(run: MarketRun) -> SweepView:
    inside = {"PREFECT_HOME": str(run.directory / "prefect")}  # the client needs a directory, even without a request
    with environment_variables({**run.variables, **inside}):
        from proteus_spot.tasks.sweeps.running.following import recorded_view

        view = recorded_view(run.job_id)
        assert view is not None
        return view


def _market(options: SweepOptions, directory: Path) -> MarketFile:
    if options.prices is None:
        market = generated_market(directory / "prices.csv.gz", (), options.catalog, HISTORY_DAYS)
    else:
        market = given_market(options.prices, (), options.catalog, options.hours or 0.0)
    if options.availability:
        check_availability(options.availability, market, options.endpoint)
    return market


def _closing_lines(spec: SweepSpec, directory: Path, database: str | None, *, has_best: bool) -> list[str]:
    """Return lines with the path of the best trial's state and the next commands, quoted for a shell."""
    where = ["--dir", str(directory), *([] if database is None else ["--database", database])]
    commands = [["sweep", verb, spec.job_id, *where] for verb in ("show", "report")]
    best = directory / "blobs" / "jobs" / spec.job_id / "best"
    state = [f"best state: {best}"] if has_best and best.exists() else []
    return [*state, "next:", *(f"  {proteus_command(*words)}" for words in commands)]


def _again(sweep_id: str, directory: Path, options: SweepOptions) -> str:
    """Return the command that continues the sweep, quoted for a shell."""
    words = ["sweep", "run", str(options.sweep_file), "--sweep-id", sweep_id, "--dir", str(directory)]
    return proteus_command(*words, *options.given)
