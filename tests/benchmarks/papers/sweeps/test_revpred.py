"""The scores and figures of benchmark `revpred`, on generated prices."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps import revpred
from proteus_spot.benchmarks.papers.sweeps.revpred import percent_less, roughest
from proteus_spot.benchmarks.papers.sweeps.revpred_picture import draw_scores
from proteus_spot.benchmarks.papers.sweeps.revpred_scores import judge
from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.sweep_field import SweepField, roughness, stretched, sweep_field
from proteus_spot.bidding.evictions.predictors.none import NoPredictor
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel, fit_predictors
from proteus_spot.bidding.evictions.predictors.training_limits import is_passed
from proteus_spot.bidding.market.time_window import TimeWindow


class Prophet(NoPredictor):
    """Sees what comes; `wrong` of its answers are turned round."""

    def __init__(self, wrong: float = 0.0) -> None:
        self._wrong = wrong

    def predict_proba(self, trace, at_s, limit_micros):  # type: ignore[no-untyped-def]
        came = is_passed(trace, at_s, limit_micros).astype(float)
        return np.where(np.arange(len(came)) < self._wrong * len(came), 1 - came, came)


@pytest.fixture(scope="module")
def field() -> SweepField:
    return roughest(sweep_field(None), 2)


@pytest.fixture(scope="module")
def models(field: SweepField) -> dict[str, PredictorModel]:
    window = TimeWindow(field.fit_from_s, field.prices.from_s)
    table = fit_predictors("table", field.traces, window)
    made = {name: replace(table, predictors=dict.fromkeys(field.traces, Prophet(wrong)))
            for name, wrong in (("tributary", 0.25), ("revpred", 0.0))}  # fmt: skip
    return {"table": table, "logistic": fit_predictors("logistic", field.traces, window), **made}


def test_means_are_compared_start_by_start() -> None:
    beside = np.array([[10.0, 20.0, 60.0], [20.0, 40.0, 120.0]])
    assert percent_less(0.75 * beside, beside) == (25, pytest.approx(0, abs=1e-9))
    saved, error = percent_less(beside - np.array([[0, 6, 0]]), beside)
    assert saved == pytest.approx(100 * 6 / 135)
    assert error > 3


def test_the_roughest_markets_are_chosen_by_the_fitted_weeks(field: SweepField) -> None:
    every = sweep_field(None)
    best = sorted((roughness(every.table, market) for market in every.prices.markets), reverse=True)[:2]
    assert sorted(roughness(field.table, market) for market in field.prices.markets) == sorted(best)
    assert field.fit_from_s < field.prices.from_s


@pytest.mark.parametrize("kind", ["random", "border"])
@pytest.mark.papers
def test_scores_are_those_of_the_answers(field: SweepField, models: dict[str, PredictorModel], kind: str) -> None:
    later = TimeWindow(field.prices.from_s, field.prices.from_s + 4 * 86_400)
    found = judge(models, field.traces, later, kind)
    assert found["revpred"].accuracy.tolist() == found["revpred"].f1.tolist() == [1, 1]
    assert found["revpred"].brier.tolist() == [0, 0]
    assert found["tributary"].accuracy == pytest.approx(np.full(2, 0.75), abs=0.01)
    assert found["tributary"].brier == pytest.approx(1 - found["tributary"].accuracy)
    assert (found["logistic"].brier > 0).all()


def test_the_figures_name_the_paper_s(
    field: SweepField, models: dict[str, PredictorModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [stretched(generate_trials(0, trials=4, steps=10), 2.0)]
    monkeypatch.setattr(revpred, "applications", lambda: (records, "generated trials"))
    later = TimeWindow(field.prices.from_s, field.prices.from_s + 2 * 86_400)
    scores = {"random": judge(models, field.traces, later, "random")}
    draw_scores(scores, [str(market) for market in field.prices.markets], "a note", tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    (accuracy, _) = revpred._gains(scores["random"], "random", "a note")
    assert accuracy.beside == 20.32
    assert accuracy.ours == pytest.approx(100 * (1 / 0.75 - 1), abs=2)
    costs = {figure.what: figure for figure in revpred._costs(field, models, 1)}
    assert costs["a sweep by clairvoyant"].ours == costs["a sweep by revpred"].ours > 0
    assert costs["revpred's sweep costs less than tributary's"].beside == 25
