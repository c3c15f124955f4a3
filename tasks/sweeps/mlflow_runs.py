"""The trials of a sweep as runs of MLflow, written by the flow where a tracking URL is set; never by a node.

A trial is one run, found again by its tags: a flow that is run again goes on with it. MLflow is a copy for its users;
nothing is read from it but what was written already.
"""

import logging
import math
import os
from collections.abc import Iterator
from typing import Any

from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.extras import how_to_install
from proteus_spot.reports.sweep_view import SweepView, TrialLine

_log = logging.getLogger(__name__)

#: MLflow's own setting of where runs are written.
TRACKING_URI = "MLFLOW_TRACKING_URI"
_SWEEP, _TRIAL, _LOGGED = "proteus.sweep", "proteus.trial", "proteus.logged_step"
#: Maximum number of metrics in one request of MLflow's API, and of characters of a parameter.
_MOST_METRICS, _MOST_CHARACTERS = 1000, 500
_ENDS = {"finished": "FINISHED", "stopped_early": "KILLED", "failed": "FAILED"}


def mlflow_client() -> Any:
    """Return MLflow's client where a tracking URL is set and MLflow is installed; else None, with a line in the log."""
    url = os.environ.get(TRACKING_URI, "").strip()
    if not url:
        return None
    try:
        from mlflow import MlflowClient
    except ImportError:
        _log.warning(
            "%s is set, and MLflow is not installed: nothing is written there: %s",
            TRACKING_URI,
            how_to_install("mlflow"),
        )
        return None
    return MlflowClient(tracking_uri=url)


class MlflowRuns:
    """The runs of a sweep's trials, none where `mlflow_client` has no client. A plain object, for Prefect's sake.

    Parameters
    ----------
    experiment : name of MLflow's experiment, made where there is none: that of the sweep, without the id of a run.
    """

    def __init__(self, sweep_id: str, experiment: str) -> None:
        self._client, self._sweep_id, self._experiment = mlflow_client(), sweep_id, experiment
        self._clock = SystemClock()
        #: Trial -> its run, and the newest step that is written there.
        self._runs: dict[int, tuple[str, int]] | None = None
        self._ended: set[int] = set()

    def update(self, view: SweepView) -> None:
        """Write what is new of each trial; failures are only logged, since MLflow must not end a sweep."""
        if self._client is None:
            return
        try:
            for trial in view.trials:
                if trial.number not in self._ended:
                    self._update(view, trial)
        except Exception:  # noqa: BLE001 - as above, whatever its client raises
            _log.exception("sweep %s: MLflow did not take its trials; the sweep goes on without", self._sweep_id)

    def _update(self, view: SweepView, trial: TrialLine) -> None:
        from mlflow.entities import Metric

        run_id, logged = self._run(trial)
        now_ms = round(1000 * self._clock.now_s())
        is_new = trial.curve_steps > logged
        points = [
            (int(step), float(value))
            for step, value in zip(trial.curve_steps[is_new], trial.curve_values[is_new], strict=True)
            if math.isfinite(value)
        ]
        for at in range(0, len(points), _MOST_METRICS):
            batch = points[at : at + _MOST_METRICS]
            metrics = [Metric(view.metric, value, now_ms, step) for step, value in batch]
            self._client.log_batch(run_id, metrics=metrics)
            self._client.set_tag(run_id, _LOGGED, str(batch[-1][0]))
            self._runs_by_trial()[trial.number] = run_id, batch[-1][0]
        if trial.state in _ENDS or view.ended_s is not None:
            self._ended.add(trial.number)
            for name, tag in self._tags(trial):
                self._client.set_tag(run_id, name, tag)
            self._client.set_terminated(run_id, _ENDS.get(trial.state, "KILLED"))

    def _tags(self, trial: TrialLine) -> Iterator[tuple[str, str]]:
        yield "proteus.state", trial.state
        yield "proteus.usd", f"{to_dollars(trial.spent_micros):.6f}"
        yield "proteus.refunded_usd", f"{to_dollars(trial.refunded_micros):.6f}"
        yield "proteus.evictions", str(trial.evictions)
        if trial.why:
            yield "proteus.why", trial.why

    def _run(self, trial: TrialLine) -> tuple[str, int]:
        """Return the run of a trial, made where there is none, and the newest step that it has."""
        from mlflow.entities import Param

        runs = self._runs_by_trial()
        if trial.number not in runs:
            tags = {_SWEEP: self._sweep_id, _TRIAL: str(trial.number)}
            name = f"{self._sweep_id} {trial.name}"
            run_id = self._client.create_run(self._experiment_id(), tags=tags, run_name=name).info.run_id
            params = [Param(key, str(value)[:_MOST_CHARACTERS]) for key, value in trial.params.items()]
            self._client.log_batch(run_id, params=params)
            runs[trial.number] = run_id, 0
        return runs[trial.number]

    def _runs_by_trial(self) -> dict[int, tuple[str, int]]:
        """Return the runs that an earlier run of the flow has made, read once."""
        if self._runs is None:
            found = self._client.search_runs(
                [self._experiment_id()], filter_string=f"tags.`{_SWEEP}` = '{self._sweep_id}'", max_results=10_000
            )
            tagged = [(run.info.run_id, run.data.tags) for run in found]
            self._runs = {int(tags[_TRIAL]): (run_id, int(tags.get(_LOGGED, "0"))) for run_id, tags in tagged}
        return self._runs

    def _experiment_id(self) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment)
        made = experiment.experiment_id if experiment is not None else self._client.create_experiment(self._experiment)
        return str(made)
