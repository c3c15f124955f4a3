"""The trial files of SpotTune's applications: the sweeps are valid, and an interrupted trial ends the same."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proteus_spot.benchmarks.papers.sweeps import trials
from proteus_spot.infra.trials.trial import Trial
from proteus_spot.tasks.sweeps.sweep_spec import read_sweep

FOLDER = Path(trials.__file__).parent
FILES = sorted(FOLDER.glob("*.yaml"))


def load(path: Path, name: str) -> Callable[[Trial], None]:
    """Import a file as a machine does: by its path, outside any package."""
    spec = importlib.util.spec_from_file_location(f"user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_grid_has_sixteen_settings(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.trial_count == 16
    assert sweep.is_built_in or (FOLDER / sweep.code).exists()
    assert sweep.metric.direction == "minimize"


#: Compiling a network takes many seconds.
TRAINED = [
    pytest.param(path, marks=pytest.mark.storm if path.stem in ("convolutional", "residual") else (), id=path.stem)
    for path in FILES
    if path.stem != "mlr"
]


@pytest.mark.parametrize("path", TRAINED)
@pytest.mark.papers
def test_an_interrupted_trial_ends_as_one_that_was_not(path: Path, tmp_path: Path) -> None:
    sweep = read_sweep(path)
    train = load(FOLDER / sweep.code, "train")
    params = sweep.settings[2]
    whole = Trial.local(params, max_trial_steps=3)
    train(whole)
    for steps in (2, 3):
        part = Trial.local(params, max_trial_steps=steps, directory=tmp_path)
        train(part)
    assert list(part.reported) == [3]
    assert part.reported[3] == pytest.approx(whole.reported[3], rel=1e-6)
    assert whole.reported[3]["loss"] < whole.reported[1]["loss"]
