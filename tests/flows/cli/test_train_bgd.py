"""`proteus train bgd` and `predict` on files that a user brings: ten classes, svmlight, a target of numbers."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_digits, make_classification, make_regression

from proteus_spot.infra.applications.trained_models import load_model, save_model
from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths, part_name
from proteus_spot.psengine.apps.bgd import ElasticDescent
from proteus_spot.psengine.apps.registry import driver_of, resolve
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.single_process import JobAlone, initial
from proteus_spot.studies.prediction.predictions import predict
from tests.support.cli_process import inside, proteus


def trained(directory: Path, source: Path, clocks: int, **params: object) -> str:
    """Train in this process; return the model's directory."""
    blobs, n_partitions = Blobs((directory / "blobs").as_uri()), 3
    data = prepare(blobs, "job", str(source), n_partitions, 0, "bgd")
    config = JobConfig("job", "bgd", dict(data.sizes) | params, data.data_url, n_partitions, clocks=clocks)
    app = resolve("bgd", config.app_params)
    assert isinstance(app, ElasticDescent)
    app.check_sizes()
    parts = [app.prepare(blobs.read_npz(f"{JobPaths('job').data}/{part_name(part)}")) for part in range(n_partitions)]
    job = JobAlone(app, parts, initial(app, 0), driver=lambda: driver_of(config))
    while job.driver.end is None:
        for task in job.ready():
            job.run(task)
    save_model(blobs, config, job.tables(), {"clocks": clocks, "losses": []})
    return str(directory / "blobs" / JobPaths("job").model)


def test_ten_classes_of_a_csv_file(tmp_path: Path) -> None:
    digits = load_digits()
    source = tmp_path / "digits.csv"
    with source.open("w", newline="") as file:
        rows = zip(digits.data[:600].tolist(), digits.target[:600].tolist(), strict=True)
        csv.writer(file).writerows([*(value / 16 for value in x), f"digit {y}"] for x, y in rows)
    for params in ({}, {"loss": "hinge", "l2": 1e-3}):
        found = predict(trained(tmp_path / str(len(params)), source, 60, **params), str(source))
        assert found.accuracy is not None
        assert found.accuracy > 0.95
        assert set(found.values) == {f"digit {y}" for y in range(10)}


def test_a_target_of_numbers(tmp_path: Path) -> None:
    x, y = make_regression(90, 4, noise=0.1, random_state=0)
    source, out = tmp_path / "prices.csv", tmp_path / "out.csv"
    np.savetxt(source, np.c_[x, y], delimiter=",", header="a,b,c,d,target", comments="")
    model = trained(tmp_path, source, 100, l2=1e-9)
    run = inside("predict", model, "--data", str(source), "--out", str(out), cwd=tmp_path, home=tmp_path / "home")
    assert run.code == 0, run
    with out.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["row", "value"]
    np.testing.assert_allclose([float(value) for _, value in rows[1:]], y, atol=1.0)
    found = predict(model, str(source))
    assert found.rmse == pytest.approx(float(np.sqrt(np.mean((found.values - y.astype(np.float32)) ** 2))))
    assert f"90 rows, rmse {found.rmse:.4f} from their values" in run.out + run.err
    whole = tmp_path / "whole.csv"
    whole.write_text("a,b,c,d,target\n" + "".join(f"{','.join(map(str, row))},{i}\n" for i, row in enumerate(x[:5])))
    numbers = predict(model, str(whole))
    assert numbers.rmse == pytest.approx(float(np.sqrt(np.mean((numbers.values - np.arange(5)) ** 2))))
    app, _, _ = load_model(model, "", "", tmp_path)
    assert app.predicts == "value"


def test_a_target_that_does_not_fit_the_loss_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{i},{i % 2}\n" for i in range(20)))
    options = ("--data", "a.csv", "--param", "loss=squared", "--dir", "state")
    run = inside("train", "bgd", *options, cwd=tmp_path, home=tmp_path / "home")
    assert run.code == 2, run
    assert "loss=squared wants a target of numbers; the labels are classes" in run.err
    with pytest.raises(JobError, match="solver is 'newton'; want one of lbfgs, gradient"):
        resolve("bgd", {"n_inputs": 2, "n_examples": 3, "n_partitions": 1, "n_classes": 2, "solver": "newton"})


@pytest.mark.e2e
@pytest.mark.slow
def test_svmlight_under_a_script_of_events(tmp_path: Path) -> None:
    x, y = make_classification(400, 30, n_informative=10, class_sep=3.0, random_state=0)
    x[np.abs(x) < 0.5] = 0.0
    dump_svmlight_file(x, y, str(tmp_path / "a.svm"))
    (tmp_path / "events.csv").write_text("clock:8,kill,t1\nclock:12,notice,t2,3\nclock:20,join\n")
    options = (
        "--data",
        "a.svm",
        "--clocks",
        "40",
        "--partitions",
        "4",
        "--nodes",
        "r=1,t=3",
        "--job",
        "j",
        "--stage",
        "1",
    )
    run = proteus(
        "train", "bgd", *options, "--events", "events.csv", "--json", "-", cwd=tmp_path, home=tmp_path / "home"
    )
    assert run.code == 0, run
    figures = json.loads(run.out)
    assert [event["action"] for event in figures["events"]] == ["kill", "notice", "join"]
    assert [event["clock"] for event in figures["events"]] == [8, 12, 20], "accepted steps, which the events wait for"
    assert figures["converged"].startswith(("40 rounds; redone rounds: ", "no step decreases"))
    assert figures["clocks"] == len(figures["losses"]) == figures["losses"][-1][0] <= 40
    assert figures["converged"].endswith(f"redone rounds: {figures['redone_rounds']}")
    assert figures["redone_rounds"] >= 1, "t1 serves nothing, so that nothing is rolled back"
    assert max((int(clock) for clock in re.findall(r"clock (\d+)/40", run.err)), default=0) <= 40
    assert figures["metrics"]["accuracy"] > 0.8
    found = predict(figures["model"].removesuffix("/model.npz"), str(tmp_path / "a.svm"))
    assert found.accuracy is not None
    assert found.accuracy > 0.9
