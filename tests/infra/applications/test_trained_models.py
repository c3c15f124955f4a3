"""Models are saved and loaded; other files, and models of other applications, are refused in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from proteus_spot.infra.applications.trained_models import find_best, find_result, keep_best, load_model, save_model
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs, npz_bytes
from proteus_spot.psengine.apps.base import Predicts
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.shell.callbacks import BestModel
from tests.support.trained_models import trained_model

MLR = {"n_inputs": 2, "n_classes": 3, "n_examples": 9}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(
        "".join(f"{i % 3},{-(i % 3)},{('rose', 'lily', 'iris')[i % 3]}\n" for i in range(30))
    )
    return Path(trained_model(tmp_path / "blobs", str(tmp_path / "a.csv"), "mlr", step=0.5))


def edited(model: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    body = json.loads((model / "manifest.json").read_text())
    edit(body)
    (model / "manifest.json").write_text(json.dumps(body))


def test_a_model_comes_back_with_its_application_and_labels(model: Path) -> None:
    for where in (str(model), f"{model}/", f"{model}/model.npz", model.as_uri()):
        app, tables, about = load_model(where, "mlr")
        assert isinstance(app, MultinomialLogisticRegression)
        assert isinstance(app, Predicts)
        assert (app.n_inputs, app.n_classes, app.n_examples, app.step) == (2, 3, 24, 0.5)
        assert tables["weights"].tobytes() == np.load(model / "model.npz")["weights"].tobytes()
        assert np.any(tables["weights"])
        assert (about.app, about.labels, about.code_sha256) == ("mlr", ("iris", "lily", "rose"), "")


def test_a_path_is_taken_as_it_is_spelled(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = model.parents[3] / "my models 100%"
    model.parents[2].rename(odd)
    monkeypatch.chdir(odd)
    assert load_model("jobs/job/model")[2].app == "mlr"
    assert load_model(str(odd / "jobs" / "job" / "model"))[2].app == "mlr"


def test_the_result_that_is_found_again_is_the_one_that_was_saved(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    config = JobConfig("job", "mlr", MLR, blobs.url_of("jobs/job/data"), clocks=1)
    assert find_result(blobs, config) is None
    save_model(blobs, config, {"weights": np.zeros((3, 3), np.float32)}, {"clocks": 7})
    assert find_result(blobs, config) == {"clocks": 7}
    assert load_model(blobs.url_of("jobs/job/model"))[2].labels == ()  # its data were not prepared by us


def test_a_model_is_loaded_from_a_bucket(model: Path) -> None:
    for file in model.iterdir():
        with fsspec.open(f"memory://bucket/m/{file.name}", "wb") as target:
            target.write(file.read_bytes())
    assert load_model("memory://bucket/m/model.npz")[2].url == "memory://bucket/m"


def test_names_of_users_and_items_are_kept_with_the_model(tmp_path: Path, model: Path) -> None:
    rows = [(f"u{user}", 3 * item, user * item % 5) for user in range(8) for item in range(9)]
    (tmp_path / "r.csv").write_text("".join(f"{user},{item},{value}\n" for user, item, value in rows))
    of = Path(trained_model(tmp_path / "mf", str(tmp_path / "r.csv"), "mf", clocks=1, rank=2))
    names = load_model(str(of))[2].names
    with np.load(of.parent / "data" / "heldout.npz") as held:
        assert {name: names[name].tolist() for name in names} == {
            name: held[name].tolist() for name in ("user_names", "item_names")
        }
    assert load_model(str(model))[2].names == {}
    assert sorted(file.name for file in model.iterdir()) == ["manifest.json", "model.npz"]
    (of / "names.npz").write_bytes((of / "model.npz").read_bytes())
    refused(str(of), r"names\.npz: (has \d+ bytes, not|its content differs)")


def test_a_model_is_found_below_the_directory_of_its_run(model: Path, tmp_path: Path) -> None:
    assert (
        load_model(str(tmp_path))[2].url == load_model(str(model))[2].url == load_model(str(tmp_path / "blobs"))[2].url
    )
    other = model.parents[1] / "job-2"
    shutil.copytree(model.parent, other)
    refused(str(tmp_path), "has 2 models, such as .*/job-2/model.*; name one")


def test_what_is_not_there_or_damaged_is_told(model: Path) -> None:
    refused(str(model.parent / "none"), "there is no model, as no manifest.json is there; name what the training named")
    refused(str(model.parent / "data"), "is a set of other files and no model")
    data = bytearray((model / "model.npz").read_bytes())
    data[-1] ^= 1
    (model / "model.npz").write_bytes(data)
    refused(str(model), r"model\.npz: its content differs from the manifest's digest")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:df21\nsize 1753\n"
    (model / "model.npz").write_bytes(pointer)
    refused(str(model), r"model\.npz: is a Git LFS pointer, not the file; run git lfs pull")
    (model / "model.npz").unlink()
    refused(str(model), r"model\.npz: is in the manifest and not there")
    (model / "manifest.json").write_bytes(pointer)
    refused(str(model), r"manifest\.json: is a Git LFS pointer")
    (model / "manifest.json").write_text("{}")
    refused(str(model), "is not a manifest of ours")


def test_a_model_of_another_application_is_told(model: Path) -> None:
    with pytest.raises(InputError, match="is a model of app mlr, not of mine:App; name another model"):
        load_model(str(model), "mine:App")


def test_the_best_model_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    config = JobConfig("job", "mlr", MLR, clocks=1)
    assert find_best(blobs, config) is None
    for clock in (4, 12):
        keep_best(blobs, config, BestModel(clock, {"loss": 9.0 - clock}, {"w": np.full(3, clock)}))
    best = find_best(blobs, config)
    assert best is not None
    assert (best.clock, best.figures, best.arrays["w"].tolist()) == (12, {"loss": -3.0}, [12, 12, 12])
    assert blobs.list("jobs/job/best") == [f"jobs/job/best/000000012/{name}" for name in ("manifest.json", "model.npz")]
    (tmp_path / "jobs/job/best/000000020").mkdir()  # half written
    (tmp_path / "jobs/job/best/000000020/model.npz").write_bytes(b"")
    again = find_best(blobs, config)
    assert again is not None
    assert again.clock == 12


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (
            lambda about: about.pop("model"),
            "does not say what it is a model of, so that it cannot be used; train it",
        ),
        (lambda about: about["model"].pop("labels"), "its manifest is damaged"),
        (lambda about: about["model"].update(app_params=7), "its manifest is damaged"),
        (
            lambda about: about["model"].update(app="mlp"),
            "is a model of app mlp; to run its code name mlp after the model",
        ),
        (lambda about: about["model"].update(app_params=MLR | {"depth": 3}), "does not take these app_params"),
        (
            lambda about: about["model"]["app_params"].update(n_inputs=4),
            r"table weights is float32 \(3, 3\), and app mlr has float32 \(5, 3\)",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_told(model: Path, edit: Callable[[Any], Any], says: str) -> None:
    edited(model, lambda body: edit(body["about"]))
    refused(str(model), says)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"clusters": np.zeros((3, 3), np.float32)}, r"holds tables \['clusters'\], and app mlr has \['weights'\]"),
        ({"weights": np.zeros((3, 3))}, r"is float64 \(3, 3\), and app mlr has float32"),
        ({"weights": np.zeros((4, 3), np.float32)}, r"is float32 \(4, 3\)"),
    ],
)
def test_tables_of_another_application_are_told(model: Path, tables: dict[str, np.ndarray], says: str) -> None:
    about = json.loads((model / "manifest.json").read_text())["about"]
    Blobs(model.parent.as_uri()).write_set("model", {"model.npz": npz_bytes(tables)}, about)
    refused(str(model), says)


def refused(where: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load_model(where)
    assert "\n" not in str(caught.value)


class Ran(Exception):
    """Raised if the code of a model is run."""


def test_code_that_nobody_named_is_never_run(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of unknown origin may name any callable of any module."""

    def run(**_: Any) -> None:
        raise Ran

    monkeypatch.setattr("shutil.rmtree", run)
    edited(model, lambda body: body["about"]["model"].update(app="shutil:rmtree", app_params={"path": "."}))
    refused(str(model), "to run its code name shutil:rmtree after the model")
    with pytest.raises(InputError, match="does not take these app_params: Ran"):
        load_model(str(model), "shutil:rmtree")  # the test would see it
