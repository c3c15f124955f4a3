"""The page of a job in the Prefect UI, and its report in the blob store. A failure here stops no job."""

import logging
import shlex
from collections.abc import Sequence
from uuid import UUID

from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from proteus_spot.bidding.billing.spending import Use
from proteus_spot.bidding.market.money import usd
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.state.records import Job, JobState, ObservationKind
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.reports.pages.job_markdown import job_markdown
from proteus_spot.reports.pages.job_page import Table, render
from proteus_spot.reports.pages.page_tables import predict_command
from proteus_spot.reports.pictures.job_pictures import job_png
from proteus_spot.tasks.job_pages import open_page, write_page
from proteus_spot.tasks.market.costs import CostRow, cost_rows
from proteus_spot.tasks.reports.job_report import gather, read_facts
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Real seconds between two pages of an open job: made by the run that follows it, and by ticks where none does.
FOLLOWED_S = 60.0
EVERY_S = 300.0


def show_job(job_id: str) -> None:
    """Write the job's report, and its page in the Prefect UI; failures are only logged."""
    try:
        url = save_report(job_id)
        publish_page(job_id, url)
    except Exception:  # noqa: BLE001 - a page must not end a job, whatever fails
        _log.exception("job %s: its report or its page could not be made; the job goes on without", job_id)


def link_page(job_id: str) -> None:
    """Make the job's page if there is none, and name its address in the log of this run."""
    try:
        if flow_run.id:
            runtime, url = current_runtime(), open_page(job_id, UUID(str(flow_run.id)))
            get_run_logger().info("%s: its page: %s", job_id, url)
            runtime.store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.PAGE, {"url": url})
    except Exception:  # noqa: BLE001 - as above
        _log.exception("job %s: its page could not be made; the job goes on without", job_id)


def show_job_now_and_then(job_id: str, every_s: float = EVERY_S) -> None:
    """Do what `show_job` does every few minutes while the job goes on, and once nothing more is held for it."""
    try:
        due = _due(job_id, every_s)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("job %s: could not check whether its page is due", job_id)
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


@runtime_task("publish page")
def publish_page(job_id: str, report_url: str) -> None:
    """Show the job's page in the Prefect UI; the one that is there is changed, so that links to it stay."""
    runtime = current_runtime()
    facts = read_facts(runtime.store, job_id)
    page = gather(runtime.store, job_id, runtime.blobs.url)
    picture = job_png(page.chart) if facts.progress or facts.allocations else b""
    markdown = job_markdown(
        facts, page, cost_table(cost_rows([job_id])), picture, report_url, next_commands(facts.job, runtime.blobs.url)
    )
    write_page(job_id, markdown, f"{job_id}: {facts.job.state}", UUID(str(flow_run.id)) if flow_run.id else None)


def cost_table(rows: Sequence[CostRow]) -> Table:
    """Return the costs of a job by market, tier and use, with their sum."""
    cells = tuple((row.market, row.tier, f"{row.machine_hours:.2f}", usd(row.spent), *_uses([row])) for row in rows)
    hours = sum(row.machine_hours for row in rows)
    total = ("all", "", f"{hours:.2f}", usd(sum(row.spent for row in rows)), *_uses(rows))
    columns = ("market", "tier", "machine-hours", "spent", *map(str, Use))
    return Table("costs", "What it has cost", columns, cells, foot=(total,))


def next_commands(job: Job, blob_url: str) -> list[str]:
    """Return what a user may type next about a job, quoted for a shell."""
    name = job.job_id
    commands = [["proteus", "logs", name], ["proteus", "cost", name], ["proteus", "report", name]]
    if not job.state.terminal:
        commands.append(["proteus", "stop", name])
    lines = [shlex.join(words) for words in commands]
    training = job.spec.get("training")
    if job.state in (JobState.FINISHED, JobState.STOPPED) and isinstance(training, dict) and training.get("data"):
        model = f"{blob_url.rstrip('/')}/{JobPaths(name).model}"
        lines.append(
            predict_command(model, str(training["data"]), str(training.get("app")), str(training.get("code") or ""))
        )
    return lines


def _uses(rows: Sequence[CostRow]) -> list[str]:
    return [usd(sum(row.uses.get(use, 0) for row in rows)) for use in Use]


def _due(job_id: str, every_s: float) -> bool:
    """Return whether a page has to be made, and record that it is; the first one waits a period."""
    runtime = current_runtime()
    real_s = SystemClock().now_s()
    made = runtime.store.jobs.last_observation(job_id, ObservationKind.PICTURE)
    over = runtime.store.jobs.job(job_id).state.terminal and not runtime.store.purchases.allocations(job_id, alive=True)
    if made is not None and not over and real_s - made.payload["real_s"] < every_s:
        return False
    runtime.store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.PICTURE, {"real_s": real_s})
    return over or made is not None
