"""From data to predictions by the commands of the documentation: the README's class, and inputs on several scales."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from proteus_spot.infra.storage.blobs import Blobs, npz_arrays
from tests.support.cli_process import proteus

pytestmark = [pytest.mark.e2e]

README = Path(__file__).parents[3] / "README.md"


def command(here: Path, *arguments: str) -> tuple[str, str]:
    done = proteus(*arguments, cwd=here, home=here / "home")
    assert done.code == 0, done
    return done.out, done.err


def train(here: Path, job: str, *options: str) -> tuple[dict[str, Any], str]:
    out, err = command(here, "train", *options, "--job", job, "--json", "-")
    figures: dict[str, Any] = json.loads(out)
    return figures, err


def weights(figures: dict[str, Any]) -> np.ndarray:
    folder, _, name = figures["model"].rpartition("/")
    return npz_arrays(Blobs(folder).read_bytes(name), name)["weights"]


@pytest.fixture
def irises(tmp_path: Path) -> str:
    """Irises, with a year as one input and a tiny number as another: scales that differ by six orders of magnitude."""
    x, y = load_iris(return_X_y=True)
    with (tmp_path / "iris.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [2000 + 10 * a, b, c, d / 1e3, ("setosa", "versicolor", "virginica")[label]]
            for (a, b, c, d), label in zip(x, y, strict=True)
        )
    return "iris.csv"


def test_the_class_of_the_readme_trains_and_predicts(tmp_path: Path) -> None:
    (svm,) = re.findall(r"```python\n(# my_svm\.py.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "my_svm.py").write_text(svm)
    figures, _ = train(tmp_path, "svm", "my_svm:LinearSvm", "--clocks", "60", "--nodes", "r=1,t=1")
    assert figures["metrics"]["accuracy"] > 0.85
    app = ("my_svm:LinearSvm", "--data", "digits", "--out", "out.csv", "--json", "-")
    told = json.loads(command(tmp_path, "predict", figures["model"], *app)[0])
    assert told["predicts"] == "class"
    assert told["accuracy"] > 0.85
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["row", "class"]
    assert {row[1] for row in rows[1:]} == set("0123456789")


def test_standardized_inputs_are_learnt_and_the_model_takes_them_as_they_are(tmp_path: Path, irises: str) -> None:
    options = ("mlr", "--data", irises, "--clocks", "60", "--partitions", "4")
    plain, hint = train(tmp_path, "plain", *options, "--param", "standardize=false", "--nodes", "r=1")
    assert "hint: the loss" in hint
    assert "leave out standardize=false" in hint
    alone, silence = train(tmp_path, "alone", *options, "--nodes", "r=1")
    assert "hint" not in silence
    assert alone["metrics"]["accuracy"] > 0.9 > plain["metrics"]["accuracy"]
    (tmp_path / "events.csv").write_text("clock:5,kill,t1\nclock:20,join\n")
    storm, _ = train(tmp_path, "storm", *options, "--nodes", "r=1,t=2", "--events", "events.csv")
    assert weights(storm).tobytes() == weights(alone).tobytes(), "whatever befell the nodes"
    assert storm["losses"] == alone["losses"]
    out = ("--data", irises, "--out", "out.csv", "--json", "-")
    told = json.loads(command(tmp_path, "predict", alone["model"], *out)[0])
    assert told["accuracy"] > 0.9
