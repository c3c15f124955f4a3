"""An application of the engine as a trial: in one process, a clock is a step, and the held-out figures are the metrics.

The data are prepared as a job's (`infra.datasets.prepare`), in one partition: ``part-00000.npz`` and the held-out part.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proteus_spot.infra.applications.trained_models import save_model
from proteus_spot.infra.storage.blobs import Blobs, npz_arrays
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.infra.trials.trial import Trial
from proteus_spot.infra.trials.trial_errors import TrialError
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.apps.returned import figures_of
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.update_rules import drop_optimizer_state

#: Facts of prepared data that applications are given; see `infra.datasets.prepare.DataSummary`.
_FACTS = ("sizes", "scales")


def train_application(name: str) -> Callable[[Trial], None]:
    """Return the training function of an application; its `data` is a folder of prepared data."""

    def train(trial: Trial) -> None:
        if trial.data is None:
            raise TrialError(f"trial {name}: has no data; name a set or a file by data")
        folder = Path(trial.data)
        params = application_params(json.loads((folder / "about.json").read_text()), trial.params)
        try:
            app = resolve(name, params)
            data = [app.prepare(_arrays(folder / part_name(0)))]
            heldout = _arrays(folder / HELD_OUT)
        except (JobError, ValueError, OSError) as error:
            raise TrialError(f"trial {name}: {error}") from None
        tables: Arrays = trial.restore() or initial(app, trial.seed, finite=False)
        for step in trial.steps():
            # A setting with which a training diverges is a bad one, and no fault.
            tables = train_alone(app, data, tables, step, done=step - 1, finite=False)
            figures = app.evaluate(drop_optimizer_state(app.tables(), tables), heldout)
            trial.report(step, **figures_of(app.evaluate, figures))
            trial.save(dict(tables))

    return train


def application_params(about: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an application is constructed with: the facts of its data, and the parameters of a trial."""
    facts = {name: value for fact in _FACTS for name, value in (about.get(fact) or {}).items()}
    return {**facts, **params}


def save_application_model(
    blobs: Blobs, sweep_id: str, name: str, params: Mapping[str, Any], tables: Arrays, result: Mapping[str, Any]
) -> str:
    """Write the model of a trial as that of a job, for `proteus predict`; return its URL."""
    paths = JobPaths(sweep_id)
    manifest = blobs.manifest(paths.data)
    app_params = application_params({} if manifest is None else manifest.about, params)
    config = JobConfig(sweep_id, name, app_params, blobs.url_of(paths.data))
    save_model(blobs, config, drop_optimizer_state(resolve(name, app_params).tables(), tables), result)
    return blobs.url_of(paths.model)


def _arrays(path: Path) -> dict[str, Any]:
    return npz_arrays(path.read_bytes(), str(path))
