"""The report of a sweep, and a sweep as `proteus sweep show` follows it, over the state databases that a user means."""

from collections.abc import Iterator
from pathlib import Path

from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.files import write_whole
from proteus_spot.infra.local_market.announcement import is_up_directory
from proteus_spot.infra.local_market.job_stores import RUNS, find_job, is_under_way, open_job_stores
from proteus_spot.reports.pages.figures_page import render
from proteus_spot.reports.pages.sweep_page import sweep_page
from proteus_spot.reports.pictures.study import study_svgs
from proteus_spot.reports.pictures.sweep_pictures import curves_svg, dollars_svg, parallel_svg, timeline_svg
from proteus_spot.reports.sweep_view import SweepView
from proteus_spot.tasks.sweeps.sweep_folder import has_local_sweep, local_view
from proteus_spot.tasks.sweeps.sweep_state import read_on, sweep_view

#: Real seconds between two looks at a sweep that is followed.
_LOOK_S = 1.0


def report_html(view: SweepView, *, has_study: bool = True) -> bytes:
    """Return the report of a sweep as one HTML file, which needs no network.

    Parameters
    ----------
    has_study : whether Optuna's plots are in it, which take some seconds.
    """
    drawn = {
        "time": timeline_svg(view),
        "curves": curves_svg(view),
        "parallel": parallel_svg(view),
        **(study_svgs(view) if has_study else {}),
        "dollars": dollars_svg(view),
    }
    return render(sweep_page(view, drawn)).encode()


def find_sweep(sweep_id: str, database: str | None = None, directory: Path | None = None) -> SweepView:
    """Return a sweep; `database` and `directory` choose as in `infra.local_market.job_stores.open_job_stores`.

    Raises
    ------
    InputError
        If it is in none of the databases, or is not a sweep.
    """
    folder = _local_folder(sweep_id, database, directory)
    if folder is not None:
        return local_view(folder)
    with open_job_stores(database, directory) as (stores, _):
        return sweep_view(find_job(stores, sweep_id).store, sweep_id)


def follow_views(sweep_id: str, database: str | None = None, directory: Path | None = None) -> Iterator[SweepView]:
    """Yield a sweep as it stands, again and again until it has ended; errors as `find_sweep`."""
    clock, folder = SystemClock(), _local_folder(sweep_id, database, directory)
    if folder is not None:
        yield (view := local_view(folder))
        while view.ended_s is None and is_under_way(folder):
            clock.wait_until(clock.now_s() + _LOOK_S)
            yield (view := local_view(folder))
        return
    with open_job_stores(database, directory) as (stores, _):
        store = find_job(stores, sweep_id).store
        view = sweep_view(store, sweep_id)
        yield view
        engine, length = SweepEngine(), 0
        while view.ended_s is None:
            clock.wait_until(clock.now_s() + _LOOK_S)
            entries = store.journals.entries(sweep_id, length)
            read_on(engine, sweep_id, entries)
            length += len(entries)
            view = sweep_view(store, sweep_id, engine)
            yield view


def write_sweep_report(
    sweep_id: str, *, output: Path | None = None, database: str | None = None, directory: Path | None = None
) -> Path:
    """Write the report of a sweep; return the file.

    Parameters
    ----------
    output
        The file. Default: ``report.html`` in the run's directory, ``<sweep>-report.html`` in that of `proteus up`, else
        here.

    Raises
    ------
    InputError
        As `find_sweep`; or the extra that draws the plots is missing; or the file cannot be written.
    """
    need_extra("sweeps", "the report of a sweep")
    folder = _local_folder(sweep_id, database, directory)
    if folder is not None:
        run_directory: Path | None = folder
        page = report_html(local_view(folder))
    else:
        with open_job_stores(database, directory) as (stores, _):
            found = find_job(stores, sweep_id)
            page, run_directory = report_html(sweep_view(found.store, sweep_id)), found.directory
    named = f"{sweep_id}-report.html"
    if output is not None:
        path = output
    elif run_directory is None:
        path = Path(named)
    else:
        path = run_directory / (named if is_up_directory(run_directory) else "report.html")
    write_whole(path, page)
    return path


def _local_folder(sweep_id: str, database: str | None, directory: Path | None) -> Path | None:
    """Return the folder of a sweep of `proteus sweep local`, where that is meant: the one named, or in ``runs/``."""
    folder = directory or RUNS / sweep_id
    return folder if database is None and has_local_sweep(folder) else None
