"""What the machines of trials have reported, from the blob store to events of the sweep.

A report is read by each tick, whole, and only what is new in it becomes an event. It was written by a machine that runs
a user's code: an invalid report is left out, with a line in the log.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import TrialReported
from proteus_spot.bidding.tuning.trials import Deployment
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs
from proteus_spot.infra.storage.trial_paths import TrialPaths
from proteus_spot.infra.trials.trial_documents import DocumentError, TrialReport
from proteus_spot.tasks.sweeps.engine_inputs import report_event
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Market and real seconds for which the report of a deployment is read after its machine has gone: its last one may
#: have been written, or become visible, after a tick found the machine gone.
_LATE_S, _LATE_REAL_S = 900.0, 30.0
_READERS = 16


@runtime_task("read reports")
def read_reports(engine: SweepEngine) -> dict[str, TrialReport]:
    """Return the reports of the deployments that may have something new to say, by order id."""
    runtime = current_runtime()
    late_s = max(_LATE_S, _LATE_REAL_S * runtime.clock.scale)
    asked = [d for d in engine.sweep.deployments.values() if _may_report(engine, d, runtime.now_s(), late_s)]
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), _READERS), thread_name_prefix="reports") as pool:
        reports = pool.map(lambda deployment: _read(runtime.blobs, engine, deployment), asked)
        return {d.order_id: report for d, report in zip(asked, reports, strict=True) if report is not None}


def new_reports(engine: SweepEngine, reports: Mapping[str, TrialReport], at_s: int) -> Sequence[TrialReported]:
    """Return the events of what the reports say that the engine has not seen."""
    events = (report_event(engine.sweep.deployments[name], report, at_s) for name, report in sorted(reports.items()))
    return [event for event in events if event is not None]


def _may_report(engine: SweepEngine, deployment: Deployment, now_s: int, late_s: float) -> bool:
    if not deployment.is_granted or deployment.ended:
        return False
    ended_at_s = engine.holdings.positions[deployment.order_id].ended_at_s
    return ended_at_s is None or now_s - ended_at_s < late_s


def _read(blobs: Blobs, engine: SweepEngine, deployment: Deployment) -> TrialReport | None:
    name = TrialPaths(str(engine.holdings.job_id), deployment.trial).report(deployment.order_id)
    try:
        return TrialReport.from_json(blobs.read_json(name))
    except BlobMissing:
        return None  # it has not begun
    except (BlobError, DocumentError) as error:
        _log.warning("%s: its report is read again by the next tick: %s", deployment.order_id, error)
        return None
