"""The best trial of a sweep, saved: its state with its settings, and as a model where the application is ours."""

import tempfile
from pathlib import Path

from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.views import best_trial
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.trial_paths import SweepPaths, TrialPaths
from proteus_spot.infra.trials.engine_application import save_application_model
from proteus_spot.infra.trials.saved_states import unpack_state
from proteus_spot.infra.trials.state_store import fetch_state, stored_states
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec


def save_best(blobs: Blobs, spec: SweepSpec, engine: SweepEngine) -> str | None:
    """Save the newest state of the best trial with its settings, in place of an earlier one.

    Returns the URL of the state or, for an application of the engine, that of a model that `proteus predict` takes;
    None if no trial has a value and a state.

    Raises
    ------
    BlobError
        If the store cannot be read or written; the state stays where it is then.
    """
    number = best_trial(engine.sweep)
    states = [] if number is None else stored_states(blobs, TrialPaths(spec.job_id, number))
    if number is None or not states:
        return None
    best, prefix = engine.sweep.trials[number], SweepPaths(spec.job_id).best
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
    with tempfile.TemporaryDirectory(prefix="proteus-best-") as scratch:
        folder = Path(scratch) / "state"
        fetch_state(blobs, states[0].prefix, folder)
        blobs.remove_set(prefix)
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        blobs.write_set(prefix, files, about)
        if not spec.is_built_in:
            return blobs.url_of(prefix)
        tables = unpack_state(folder)
    result = {"heldout": {spec.metric.name: best.value}, "clock": states[0].step}
    return save_application_model(blobs, spec.job_id, spec.trial, best.params, tables, result)
