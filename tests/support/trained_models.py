"""Trained models without the engine: data preparation, the bare loop, and saving as by the controller."""

from pathlib import Path
from typing import Any

from proteus_spot.infra.applications.trained_models import save_model
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading
from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths, part_name
from proteus_spot.psengine.apps.base import App
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.single_process import initial, train_alone


def trained_model(
    directory: Path,
    source: str,
    app: str,
    *,
    made: App | None = None,
    clocks: int = 30,
    code_sha256: str = "",
    how: Reading = PLAIN,
    **params: Any,
) -> str:
    """Train `app` on `source`; return the model's directory. `made`: the application, if it is not to be imported."""
    blobs = Blobs(directory.as_uri())
    data = prepare(blobs, "job", source, 2, 0, app, how=how)
    sizes = dict(data.sizes)
    config = JobConfig("job", app, sizes | params, data.data_url, 2, clocks=clocks, code_sha256=code_sha256)
    made = made or resolve(app, config.app_params)
    parts = [made.prepare(blobs.read_npz(f"{JobPaths('job').data}/{part_name(part)}")) for part in range(2)]
    tables = train_alone(made, parts, initial(made, 0), clocks)
    save_model(blobs, config, tables, {"clocks": clocks, "losses": []})
    return str(directory / JobPaths("job").model)
