"""Trials as runs of MLflow, where it is installed; without it a tracking URL is only noted."""

import logging
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.tasks.sweeps.mlflow_runs import TRACKING_URI, MlflowRuns, mlflow_client
from tests.support.sweep_views import small_view


def test_without_a_url_or_without_mlflow_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(TRACKING_URI, raising=False)
    assert mlflow_client() is None
    assert not caplog.records
    monkeypatch.setenv(TRACKING_URI, "sqlite:///nowhere/at.all")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with caplog.at_level(logging.WARNING):
        assert mlflow_client() is None
    assert "MLflow is not installed" in caplog.text


def test_a_trial_is_one_run_whoever_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed (extra `mlflow`)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TRACKING_URI, (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    view = small_view()
    odd = view.trials[1].curve_values.copy()
    odd[6] = np.nan
    half = replace(
        view, trials=(view.trials[0], replace(view.trials[1], curve_steps=np.arange(1, 61), curve_values=odd[:60]))
    )
    MlflowRuns("digits", "experiment").update(half)
    again = MlflowRuns("digits", "experiment")  # the flow is run again
    again.update(replace(view, trials=(*view.trials[:1], replace(view.trials[1], curve_values=odd), view.trials[2])))

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("experiment").experiment_id
    runs = {int(run.data.tags["proteus.trial"]): run for run in client.search_runs([experiment])}
    assert sorted(runs) == [0, 1, 2]
    assert runs[1].data.params == {"alpha": "0.001", "penalty": "l2"}
    history = sorted((each.step, each.value) for each in client.get_metric_history(runs[1].info.run_id, "loss"))
    assert [step for step, _ in history] == [step for step in range(1, 121) if step != 7], "each step once, without NaN"
    assert history[0][1] == pytest.approx(odd[0])
    assert [runs[number].info.status for number in range(3)] == ["KILLED", "RUNNING", "FAILED"]
    assert runs[0].data.tags["proteus.usd"] == "0.040000"


def test_a_client_that_fails_stops_no_sweep(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise ConnectionError(name)

    monkeypatch.setattr("proteus_spot.tasks.sweeps.mlflow_runs.mlflow_client", Broken)
    MlflowRuns("digits", "digits").update(small_view())
    assert "MLflow did not take its trials; the sweep goes on without" in caplog.text
