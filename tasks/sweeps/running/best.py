"""The state of a sweep's best trial, saved with its settings."""

import logging

from bidding.tuning.engine import SweepEngine
from bidding.tuning.views import best_trial
from infra.storage.blobs import BlobError
from infra.storage.trial_paths import SweepPaths, TrialPaths
from infra.trials.state_store import stored_states
from tasks.runtime import current_runtime
from tasks.sweeps.spec import SweepSpec

_log = logging.getLogger(__name__)


def save_best(spec: SweepSpec, engine: SweepEngine) -> None:
    """Save the newest state of the best trial with its settings, in place of an earlier one."""
    blobs, number = current_runtime().blobs, best_trial(engine)
    states = [] if number is None else stored_states(blobs, TrialPaths(spec.job_id, number))
    if number is None or not states:
        return
    best, prefix = engine.trials[number], SweepPaths(spec.job_id).best
    about = {
        "trial": spec.trial,
        "number": number,
        "params": dict(best.params),
        "seed": spec.seed + number,
        "metric": spec.metric.model_dump(mode="json"),
        "value": best.value,
        "steps": best.steps,
        "state_step": states[0].step,
    }
    try:
        files = blobs.read_set(states[0].prefix)
        blobs.remove_set(prefix)
        blobs.write_set(prefix, files, about)
    except BlobError as error:
        _log.error("sweep %s: the best trial's state stays where it is: %s", spec.job_id, error)
