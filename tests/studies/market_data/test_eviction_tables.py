"""Eviction models that a user gives: to a job, which then bids by them, and to a backtest and a plan."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.engine.events import JobOpened
from proteus_spot.bidding.engine.journal import from_record
from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.evictions.base import as_table
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.fit_capacity import (
    Band,
    availability_trace,
    capacity_trace,
    fit_availability,
    of_bands,
)
from proteus_spot.bidding.evictions.fit_survival import fit_table
from proteus_spot.bidding.evictions.table import DELTAS_MICROS, fit
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import write_model
from proteus_spot.studies.backtest.backtest_inputs import open_inputs
from proteus_spot.studies.market_data.eviction_tables import absolute_evictions
from proteus_spot.studies.plan.plan_spec import plan_spec, spec_of_job
from proteus_spot.studies.plan.planner import make_plan
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import open_job
from proteus_spot.tasks.training.preparation import check
from tests.support.backtests import MARKETS, quiet, small_file, small_spec, small_traces
from tests.support.backtests import T0 as FILE_BEGINS_S
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, TaskRuntime, plain, spec

#: What one of the two markets loses in a month is next to nothing; the other loses most.
OFTEN = of_bands({MARKET: Band(0.9, None), OTHER: Band(0.0, 0.01)}, open_band=0.95)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """The file of a model by capacity."""
    write_model(tmp_path / "capacity.npz", OFTEN)
    return str(tmp_path / "capacity.npz")


def opened(here: TaskRuntime) -> JobOpened:
    (event,) = (
        item for e in here.store.journals.entries("job") if isinstance(item := from_record(e.record), JobOpened)
    )
    return event


# -- a job


@pytest.mark.parametrize("policy", ["best", "proteus"])
def test_a_job_bids_by_the_model_that_it_is_given_and_learns_no_foresight(
    here: TaskRuntime, saved: str, policy: str
) -> None:
    here.begin(spec(policy=policy, markets=[str(MARKET), str(OTHER)], evictions=saved))
    event = opened(here)
    assert event.evictions == as_table(OFTEN)
    assert (event.evictions.bids_decide, event.foresight) == (False, None)


def test_under_best_the_on_demand_price_is_bid_where_bids_decide_nothing(here: TaskRuntime, saved: str) -> None:
    job = spec(policy="best", evictions=saved)
    here.begin(job)
    (order,) = here.tick(job)
    assert isinstance(order, Acquire)
    assert (order.market, order.bid_micros) == (MARKET, ON_DEMAND)
    (machine,) = (fact for fact in here.facts(job)[-1:])
    assert machine.bid_micros == ON_DEMAND


def test_what_cannot_be_had_is_taken_refused_left_alone_for_a_while_and_bought_again(
    here: TaskRuntime, saved: str
) -> None:
    here.market.capacity.traces = {MARKET: capacity_trace([2, 2, 0, 2], 1200, BEGIN_S)}
    job = spec(policy="best", evictions=saved)
    here.begin(job)

    def machines() -> list[bool]:
        return [fact.alive for fact in here.facts(job) if fact.bid_micros is not None]

    here.tick(job)
    assert machines() == [True, True]
    here.clock.at_s = BEGIN_S + 2400
    here.tick(job)  # what was taken is found gone; for λ - σ anything new would only stand still
    assert machines() == [False, False]
    here.clock.at_s = BEGIN_S + 2520
    (order,) = here.tick(job)
    assert isinstance(order, Acquire)
    kinds = [entry.record["kind"] for entry in here.store.journals.entries("job")]
    assert (kinds.count("AllocationRefused"), machines()) == (1, [False, False])
    here.clock.at_s = BEGIN_S + 2640
    (order,) = here.tick(job)
    assert isinstance(order, Wait)
    assert "left alone for a while" in order.decision.reason
    here.clock.at_s = BEGIN_S + 3600
    here.tick(job)
    assert machines() == [False, False, True, True]


def test_a_model_by_price_leaves_best_its_foresight(here: TaskRuntime, tmp_path: Path) -> None:
    traces = here.market.traces
    write_model(tmp_path / "table.npz", fit_table(traces, TimeWindow(traces.first_s, traces.first_s + 7200)))
    here.begin(spec(policy="best", evictions=str(tmp_path / "table.npz")))
    event = opened(here)
    assert event.foresight is not None
    assert (event.evictions.bids_decide, event.evictions.markets) == (True, (MARKET,))
    assert event.evictions.deltas_micros == DELTAS_MICROS


def test_a_market_that_the_model_does_not_know_is_refused_before_anything_is_bought(
    here: TaskRuntime, tmp_path: Path
) -> None:
    write_model(tmp_path / "one.npz", of_bands({MARKET: Band(0, 0.05)}))
    job = spec(markets=[str(MARKET), str(OTHER)], evictions=str(tmp_path / "one.npz"))
    says = (
        r"^.*one\.npz: knows nothing of m4\.large/us-east-1b, in which job job may bid; fit a model that does, or leave"
    )
    for step in (plain(check), lambda job: plain(open_job)(job, JobEngine("job"))):
        with pytest.raises(InputError, match=says):
            step(job)
    assert here.store.jobs.list_jobs() == []
    assert here.market.log() == []


def test_what_is_no_model_is_refused(here: TaskRuntime, tmp_path: Path) -> None:
    (tmp_path / "no.npz").write_text("no model")
    with pytest.raises(InputError, match=r"no\.npz: is not an eviction model .* `proteus evictions fit`"):
        plain(check)(spec(evictions=str(tmp_path / "no.npz")))


def test_a_path_is_made_one_that_others_understand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_evictions("m.npz") == str(tmp_path / "m.npz")
    assert (absolute_evictions("s3://b/m.npz"), absolute_evictions("")) == ("s3://b/m.npz", "")


# -- a backtest and a plan


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


def table_model(days: int) -> CurveModel:
    """The paper's table of the file's first days, as a model."""
    return fit_table(small_traces(), TimeWindow(FILE_BEGINS_S, FILE_BEGINS_S + days * DAY_S))


def test_the_papers_table_as_a_file_is_the_papers_table(prices: Path, tmp_path: Path) -> None:
    """A backtest that is given what it would have learnt finds the same, to the last second and micro-dollar."""
    write_model(tmp_path / "table.npz", table_model(6))
    learns = open_inputs(small_spec(prices, schemes=["proteus"]), quiet)
    given = open_inputs(small_spec(prices, schemes=["proteus"], evictions=str(tmp_path / "table.npz")), quiet)
    assert given.windows.fit.until_s == FILE_BEGINS_S + 6 * DAY_S
    for market in MARKETS:
        betas = [beta for beta, _ in given.evictions.rows[market]]
        assert betas == pytest.approx([beta for beta, _ in learns.evictions.rows[market]], abs=1e-12)
    assert given.evictions.deltas_micros == learns.evictions.deltas_micros
    assert given.notes == learns.notes


def test_what_a_model_has_seen_is_not_evaluated_unless_asked(prices: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "seen.npz", table_model(7))
    asked: dict[str, Any] = {"schemes": ["proteus"], "evictions": str(tmp_path / "seen.npz")}
    says = r"--evictions .*seen\.npz was fitted on 2016-06-01 .*, and has seen what is evaluated .*--allow-overlap$"
    with pytest.raises(InputError, match=says):
        open_inputs(small_spec(prices, **asked), quiet)
    field = open_inputs(small_spec(prices, **asked, allow_overlap=True), quiet)
    assert any(note.startswith("the result is not honest: --evictions") for note in field.notes)
    plan = plan_spec(prices=str(prices), hours=1.0, starts=2, evictions=asked["evictions"])
    with pytest.raises(InputError, match=r"evaluate later months by --from$"):
        make_plan(plan, quiet)


def test_by_capacity_best_runs_without_a_foresight_and_unknown_markets_are_left_alone(
    prices: Path, tmp_path: Path
) -> None:
    up = availability_trace(([1] * 9 + [0]) * 60, 600)
    model = fit_availability(TraceSet(dict.fromkeys(MARKETS[:2], up)), TimeWindow(0, 100 * 3600))
    write_model(tmp_path / "capacity.npz", model)
    asked = small_spec(prices, schemes=["best", "proteus"], evictions=str(tmp_path / "capacity.npz"))
    field = open_inputs(asked, quiet)
    assert (field.foresight, field.evictions) == (None, as_table(model))
    assert field.notes[-1].endswith(f"capacity.npz, hence not bid in: {MARKETS[2]}")
    starts_s = np.array([field.windows.evaluation.from_s, field.windows.evaluation.from_s + 7200])
    for name in asked.schemes:
        ran = run_jobs(*field.packed(MARKETS), asked.scheme(name), starts_s, 2, field.reference)
        assert ran.finished.all()
        assert (ran.relative_cost < 1).all()
    with pytest.raises(InputError, match=r"knows no market of .*small\.csv; fit a model of these"):
        open_inputs(small_spec(prices, markets=[str(MARKETS[2])], evictions=asked.evictions), quiet)


def test_a_plan_goes_by_the_model_that_it_or_its_job_is_given(prices: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "capacity.npz", of_bands(dict.fromkeys(MARKETS, Band(0.2, None))))
    asked = plan_spec(prices=str(prices), hours=1.0, starts=3, evictions=str(tmp_path / "capacity.npz"))
    made = make_plan(asked, quiet)
    assert not made.field.evictions.bids_decide
    assert {each.scheme for each in made.outlooks} >= {"best", "proteus"}
    job = spec(evictions="m.npz")
    assert spec_of_job(job, "j.yaml", works=True)["evictions"] == "m.npz"
    assert "evictions" not in spec_of_job(spec(), "j.yaml", works=True)


def test_a_file_of_the_papers_table_says_what_the_fit_says() -> None:
    traces, until_s = small_traces(), FILE_BEGINS_S + 3 * DAY_S
    learnt = fit(traces, FILE_BEGINS_S, until_s)
    model = as_table(fit_table(traces, TimeWindow(FILE_BEGINS_S, until_s)))
    for market in MARKETS:
        assert np.array(model.rows[market]) == pytest.approx(np.array(learnt.rows[market]), abs=1.0)
