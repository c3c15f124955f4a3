"""Eviction predictors: kept for sweeps, with the table where there is none; their ages; a job that names their file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.engine.events import JobOpened
from proteus_spot.bidding.engine.journal import from_record
from proteus_spot.bidding.evictions.base import as_table
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.evictions.predictors.predictor_model import fit_predictors
from proteus_spot.bidding.market.model import DAY_S, HOUR_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import LIVELY, generate
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import write_model
from proteus_spot.infra.settings import load_settings
from proteus_spot.studies.market_data.predictors import (
    keep_predictors,
    kept_predictors,
    predictor_ages,
    sweep_predictors,
)
from proteus_spot.tasks.market.ingest import observe_predictors
from tests.support.predictors import chance
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, TaskRuntime, plain, spec

WINDOW = TimeWindow(BEGIN_S - 3 * DAY_S, BEGIN_S)


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    prices = {MARKET: ON_DEMAND, OTHER: ON_DEMAND}
    return generate(prices, WINDOW.from_s, WINDOW.until_s, np.random.default_rng(0), climate=LIVELY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the settings have predictors kept."""
    monkeypatch.setenv("PROTEUS_PREDICTORS_URL", f"file://{tmp_path}/kept")
    load_settings.cache_clear()
    yield tmp_path / "kept"
    load_settings.cache_clear()


def test_a_sweep_asks_the_kept_model_of_a_market_and_the_table_for_the_others(folder: Path, traces: TraceSet) -> None:
    assert kept_predictors("logistic") is None
    alone = fit_predictors("logistic", TraceSet({MARKET: traces[MARKET]}), WINDOW)
    keep_predictors(alone)
    assert [path.name for path in folder.iterdir()] == ["logistic.npz"]
    found = sweep_predictors("logistic", traces, WINDOW)
    at_s, limit = BEGIN_S - HOUR_S, int(traces[OTHER].prices_micros.max()) - 1
    assert chance(found, traces, MARKET, at_s, limit) == chance(alone, traces, MARKET, at_s, limit)
    assert set(found.without) == {OTHER}
    above = limit - int(traces[OTHER].price_at(at_s) or 0)
    table = fit_survival(traces, WINDOW)
    assert chance(found, traces, OTHER, at_s, limit) == 1 - table.survival(OTHER, above, HOUR_S)
    nothing = sweep_predictors("none", traces, WINDOW)
    assert chance(nothing, traces, MARKET, at_s, limit) == 0
    assert sweep_predictors("table", traces, WINDOW).without == {}
    with pytest.raises(InputError, match="predictor oracle: there is no such predictor; want table"):
        sweep_predictors("oracle", traces, WINDOW)


def test_ages_are_those_of_the_prices_and_a_foreign_file_is_a_line(
    here: TaskRuntime, folder: Path, traces: TraceSet
) -> None:
    assert predictor_ages(BEGIN_S) == []
    keep_predictors(fit_predictors("logistic", traces, WINDOW))
    (line,) = predictor_ages(BEGIN_S + 12 * DAY_S)
    assert line.startswith("logistic: 2 markets, fitted on 2016-05-31 00:00 to 2016-06-03 00:00 UTC, 12.0 days old")
    assert plain(observe_predictors)() == predictor_ages(here.clock.now_s())
    (folder / "tributary.npz").write_bytes((folder / "logistic.npz").read_bytes())
    with pytest.raises(InputError, match=r"tributary\.npz: holds a model of kind logistic, not tributary"):
        predictor_ages(BEGIN_S)
    (folder / "tributary.npz").unlink()
    write_model(folder / "revpred.npz", fit_survival(traces, WINDOW))
    (line,) = plain(observe_predictors)()
    assert line.endswith("revpred.npz: holds a model of kind survival, not revpred; fit it again, or remove it")


def test_a_job_bids_by_the_mean_of_the_predictors_that_it_names(
    here: TaskRuntime, tmp_path: Path, traces: TraceSet
) -> None:
    model = fit_predictors("logistic", traces, WINDOW)
    write_model(tmp_path / "m.npz", model)
    here.begin(spec(policy="proteus", markets=[str(MARKET), str(OTHER)], evictions=str(tmp_path / "m.npz")))
    (event,) = (
        item for e in here.store.journals.entries("job") if isinstance(item := from_record(e.record), JobOpened)
    )
    assert event.evictions == as_table(model)
    assert 0 < event.evictions.rows[MARKET][0][0] < 1
