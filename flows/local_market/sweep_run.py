"""`proteus sweep run`: one whole sweep over the simulated market of this machine, with real machines' processes."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.flows.local_market.job_threads import JobThreads
from proteus_spot.flows.local_market.market_run import LocalRun, run_on_market
from proteus_spot.flows.terminal.interrupts import Interrupts
from proteus_spot.flows.terminal.sweep_lines import SweepProgress, head_lines
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.reports.sweep_view import SweepView
from proteus_spot.tasks.local_market.run_checks import (
    JobStatus,
    begun_before,
    check_database,
    check_finite,
    newest_unfinished,
)
from proteus_spot.tasks.local_market.run_environment import state_urls
from proteus_spot.tasks.sweeps.given_sweep import check_asked, in_market, read_asked
from proteus_spot.tasks.sweeps.sweep_checks import check_import
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures

#: Default market hours that a generated market lasts: a sweep's end is not known before.
_HOURS = 48.0


def asked_sweep(sweep_file: Path, sweep_id: str | None, directory: Path | None, database: str | None) -> SweepSpec:
    """Return the sweep of a file: `sweep_id`, else that of its name which the place holds unfinished, else a new one.

    Raises
    ------
    InputError
        One line that names the file and the field, or the option.
    """
    if sweep_id is None and (directory, database) != (None, None):
        url = state_urls(directory or Path(), database)["PROTEUS_DATABASE_URL"]
        sweep_id = newest_unfinished(url, read_asked(sweep_file, None).sweep)
    now = datetime.fromtimestamp(SystemClock().now_s(), UTC)
    return read_asked(sweep_file, sweep_id).for_run(f"{now:%y%m%d%H%M%S}")


def local_sweep(
    sweep_file: Path, spec: SweepSpec, run: LocalRun, hours: float | None, interrupts: Interrupts, quiet: bool = False
) -> dict[str, Any]:
    """Run one sweep on this machine to its end; return its figures, those of an ended sweep again.

    Parameters
    ----------
    sweep_file : where `spec` was read.
    hours : how long the prices must last; None: a generated market lasts two days.

    Raises
    ------
    InputError
        If the file or an option is invalid, before anything is bought or written.
    Interrupted
        If a signal asked to end, after the machines are released and the servers ended.
    """
    began_s = SystemClock().now_s()
    check_finite("--hours", hours)
    run.market.check_lasts(hours or 0.0)
    spec = in_market(spec, run.market, run.catalog)
    scale, progress = run.check(), SweepProgress(quiet)
    begun = JobStatus.NEW
    if check_database(run.url):
        begun = begun_before(run.url, spec.job_id, spec.model_dump(mode="json"), spec.extends_recorded)
    if begun is JobStatus.PAUSED:
        progress.say(f"{run.directory} holds an unfinished sweep {spec.job_id}; it goes on")
    if begun is JobStatus.NEW:
        check_asked(spec, sweep_file)
        check_import(spec, f"{sweep_file}: ", is_here=True)
    if begun is JobStatus.ENDED:
        progress.say(f"sweep {spec.job_id} was run to its end before; these are its figures")
        view = _ended(run)
    else:
        to_the_end = partial(_sweep, spec, progress)
        view = run_on_market(run, hours or _HOURS, begun, scale, progress.say, interrupts, to_the_end)
    for line in head_lines(view):
        progress.say(line)
    for line in _closing_lines(run, has_best=view.best is not None):
        progress.say(line)
    return {
        **sweep_figures(view, curves=True),
        "directory": str(run.directory),
        "real_seconds": SystemClock().now_s() - began_s,
    }


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


def _ended(run: LocalRun) -> SweepView:
    with run.records():
        from proteus_spot.tasks.sweeps.running.following import recorded_view

        view = recorded_view(run.job_id)
        assert view is not None
        return view


def _closing_lines(run: LocalRun, *, has_best: bool) -> list[str]:
    """Return lines with the path of the best trial's state and the next commands, quoted for a shell."""
    where = ["--dir", str(run.directory), *([] if run.database is None else ["--database", run.database])]
    commands = [["sweep", verb, run.job_id, *where] for verb in ("show", "report")]
    best = run.directory / "blobs" / "jobs" / run.job_id / "best"
    state = [f"best state: {best}"] if has_best and best.exists() else []
    return [*state, "next:", *(f"  {proteus_command(*words)}" for words in commands)]
