"""The jobs, a line each."""

from dataclasses import dataclass

from tasks.reports.job_summary import snapshot
from tasks.runtime import current_runtime


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as a list shows it."""

    job_id: str
    state: str
    market_s: float
    clock: int
    loss: float | None
    machines: int
    evictions: int
    spent_micros: int
    why: str


def job_lines() -> list[JobLine]:
    """Return every job, oldest first."""
    runtime = current_runtime()
    lines = []
    for job in runtime.store.jobs():
        shot = snapshot(job.job_id)
        if shot is None:
            continue
        ended_s = job.ended_at_s if job.ended_at_s is not None else runtime.clock.now_s()
        held = sum(holding.count for holding in shot.holdings if holding.state in ("held", "noticed", "lapsing"))
        lines.append(
            JobLine(
                job.job_id,
                str(job.state),
                ended_s - job.created_at_s,
                shot.clock,
                shot.loss,
                held,
                shot.evictions,
                shot.spent_micros,
                job.failure or "",
            )
        )
    return lines
