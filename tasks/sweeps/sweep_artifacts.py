"""A sweep in the Prefect UI: its page, the table of its trials, its progress; and in MLflow. No failure stops it."""

import logging
from uuid import UUID

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.runtime import flow_run

from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.reports.pages.sweep_page import counts_text, sweep_markdown, trial_rows
from proteus_spot.reports.pictures.sweep_pictures import curves_png
from proteus_spot.reports.sweep_view import SweepView
from proteus_spot.tasks.job_pages import write_page
from proteus_spot.tasks.sweeps.mlflow_runs import MlflowRuns
from proteus_spot.tasks.sweeps.sweep_page import report_html
from proteus_spot.tasks.sweeps.sweep_state import sweep_view
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Real seconds between two pages of a sweep that goes on, and between two updates of its progress.
PAGE_S = 60.0
PROGRESS_S = 5.0


def table_key(sweep_id: str) -> str:
    """Return the key of the artifact with the table of a sweep's trials."""
    return f"trials-{sweep_id}"


def progress_key(sweep_id: str) -> str:
    """Return the key of the artifact with a sweep's progress."""
    return f"progress-{sweep_id}"


def next_commands(view: SweepView) -> list[str]:
    """Return what a user may type next about a sweep."""
    commands = [f"proteus sweep {verb} {view.sweep_id}" for verb in ("show", "report")]
    return commands if view.ended_s is not None else [*commands, f"proteus sweep stop {view.sweep_id}"]


class SweepPages:
    """Shows a sweep while its flow follows it. A plain object, so that Prefect looks for no futures in it.

    `show` may be called at every look at the sweep: pages are made every `PAGE_S`, progress every `PROGRESS_S`.
    """

    def __init__(self, sweep_id: str) -> None:
        self._sweep_id = sweep_id
        self._clock = SystemClock()
        self._paged_s = self._progressed_s = float("-inf")
        self._progress: UUID | None = None
        self._mlflow: MlflowRuns | None = None

    def show(self, engine: SweepEngine | None = None, *, at_once: bool = False) -> None:
        """Show the sweep as it stands, where that is due or `at_once`; failures are only logged.

        Parameters
        ----------
        engine : the sweep's engine, if it is loaded; else the journal is replayed.
        """
        now_s = self._clock.now_s()
        if not at_once and now_s - self._progressed_s < PROGRESS_S:
            return
        self._progressed_s = now_s
        try:
            view = sweep_view(current_runtime().store, self._sweep_id, engine)
            if self._mlflow is None:
                self._mlflow = MlflowRuns(self._sweep_id, view.name)
            self._mlflow.update(view)
            self._show_progress(view)
            if at_once or now_s - self._paged_s >= PAGE_S:
                self._paged_s = now_s
                publish_sweep(view)
        except Exception:  # noqa: BLE001 - a page must not end a sweep, whatever fails
            _log.exception("sweep %s: its page could not be made; the sweep goes on without", self._sweep_id)

    def _show_progress(self, view: SweepView) -> None:
        self._progress = publish_progress(view, self._progress)


@runtime_task("publish progress")
def publish_progress(view: SweepView, progress: UUID | None) -> UUID | None:
    """Make the artifact of the sweep's progress, or update it; return its id."""
    percent, what = 100.0 * view.done_share, counts_text(view) or "no trial has begun"
    if progress is None:
        made = create_progress_artifact(percent, key=progress_key(view.sweep_id), description=what)
        return made if isinstance(made, UUID) else None
    update_progress_artifact(progress, percent, description=what)
    return progress


@runtime_task("publish sweep")
def publish_sweep(view: SweepView) -> None:
    """Write the sweep's report to the blob store, its page and the table of its trials to the Prefect UI."""
    blobs, name = current_runtime().blobs, JobPaths(view.sweep_id).report
    blobs.write_bytes(name, report_html(view, has_study=view.ended_s is not None))
    curves = curves_png(view) if any(len(trial.curve_steps) for trial in view.trials) else b""
    markdown = sweep_markdown(view, curves, [*next_commands(view)]) + f"\n\nReport: `{blobs.url_of(name)}`"
    run_id = UUID(str(flow_run.id)) if flow_run.id else None
    write_page(view.sweep_id, markdown, f"{view.sweep_id}: {view.state}", run_id)
    if view.trials:
        create_table_artifact(trial_rows(view), key=table_key(view.sweep_id), description="Trials, the best first")
