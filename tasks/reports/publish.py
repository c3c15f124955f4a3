"""The picture of a job in the Prefect UI and its report in the blob store. A failure here stops no job."""

import base64
import logging

from prefect.artifacts import create_markdown_artifact

from bidding.market.money import usd
from infra.clock import SystemClock
from infra.state.records import ObservationKind
from infra.storage.job_paths import JobPaths
from reports.pages.job_page import render
from reports.pictures.job import job_png
from tasks.reports.job_page import gather
from tasks.runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Real seconds between two pictures of an open job.
EVERY_S = 300.0


def show_job(job_id: str) -> None:
    """Write the job's report, and show its picture in the Prefect UI; failures are only logged."""
    try:
        url = save_report(job_id)
        publish_picture(job_id, url)
    except Exception:  # noqa: BLE001 - a picture must not end a job, whatever fails
        _log.exception("job %s: its report or its picture could not be made; the job goes on without", job_id)


def show_job_now_and_then(job_id: str) -> None:
    """Do what `show_job` does every few minutes while the job goes on, and once nothing more is held for it."""
    try:
        due = _due(job_id)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("job %s: could not check whether a picture is due", job_id)
        return
    if due:
        show_job(job_id)


@runtime_task("save report")
def save_report(job_id: str) -> str:
    """Write the current report to the blob store; return its URL."""
    runtime = current_runtime()
    name = JobPaths(job_id).report
    runtime.blobs.write_bytes(name, render(gather(runtime.store, job_id, runtime.blobs.url)).encode())
    return runtime.blobs.url_of(name)


@runtime_task("publish picture")
def publish_picture(job_id: str, report_url: str) -> None:
    """Show the job in the Prefect UI: its picture, and the URL of its report.

    Notes
    -----
    An image artifact would print the whole data URL as text below the picture; Markdown shows the picture alone.
    """
    runtime = current_runtime()
    job = runtime.store.job(job_id)
    lines = [f"**{job.state}**, {usd(runtime.store.spent(job_id))} spent.", f"Report: `{report_url}`"]
    png = base64.b64encode(job_png(gather(runtime.store, job_id).chart)).decode()
    lines.append(f"![prices and bids, footprint, loss and dollars](data:image/png;base64,{png})")
    create_markdown_artifact("\n\n".join(lines), key=f"picture-{job_id}", description=f"{job_id} at one look")


def _due(job_id: str) -> bool:
    """Return whether a tick has to make a picture, and record that it does; the first one waits a period."""
    runtime = current_runtime()
    real_s = SystemClock().now_s()
    made = runtime.store.last_observation(job_id, ObservationKind.PICTURE)
    over = runtime.store.job(job_id).state.terminal and not runtime.store.allocations(job_id, alive=True)
    if made is not None and not over and real_s - made.payload["real_s"] < EVERY_S:
        return False
    runtime.store.observe(job_id, runtime.clock.now_s(), ObservationKind.PICTURE, {"real_s": real_s})
    return over or made is not None
