"""What is run, and what is written of it."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proteus_spot.studies.backtest.job_runs
from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
from proteus_spot.bidding.backtest.outcomes import Outcome, summary
from proteus_spot.bidding.backtest.reference_cluster import draw_starts
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs, open_inputs
from proteus_spot.studies.backtest.backtest_spec import NAMES, BacktestSpec, backtest_spec
from proteus_spot.studies.backtest.job_runs import CellResult, plan, run_cells, setting_of
from proteus_spot.studies.backtest.result_tables import COLUMNS, as_json, cells, write_csv
from tests.support.backtests import MARKETS, quiet, small_file, small_spec


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


@pytest.fixture(scope="module")
def spec(prices: Path) -> BacktestSpec:
    return small_spec(prices)


@pytest.fixture(scope="module")
def field(spec: BacktestSpec) -> BacktestInputs:
    return open_inputs(spec, quiet)


def ran(field: BacktestInputs, spec: BacktestSpec) -> list[CellResult]:
    return list(run_cells(plan(field, spec), threads=1, report=quiet))


@pytest.fixture(scope="module")
def runs(field: BacktestInputs, spec: BacktestSpec) -> list[CellResult]:
    return ran(field, spec)


# Run


def test_every_scheme_every_zone_every_length_in_the_order_of_the_table(
    field: BacktestInputs, runs: list[CellResult]
) -> None:
    assert [(each.cell.hours, each.cell.zone, each.cell.scheme) for each in runs] == [
        (hours, zone, scheme) for hours in (1, 2) for zone in ("us-east-1a", "us-east-1b", "all") for scheme in NAMES
    ]
    assert field.markets == MARKETS


def test_a_cell_is_what_the_simulator_says_of_it(
    field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult]
) -> None:
    window = field.windows.evaluation
    for each in (runs[0], runs[len(NAMES) - 2], runs[-2]):
        starts_s = draw_starts(np.random.default_rng(0), window.from_s, window.until_s, each.cell.hours, 12)
        (markets,) = field.zones([each.cell.zone]).values()
        scheme = spec.scheme(each.cell.scheme)
        told = run_jobs(*field.packed(markets), scheme, starts_s, each.cell.hours, field.reference)
        assert np.array_equal(told.rows, each.outcomes.rows)
        assert np.array_equal(starts_s, each.starts_s)


def test_the_starts_of_many_batches_are_those_of_one(
    field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proteus_spot.studies.backtest.job_runs, "_BATCH", 5)
    for one, other in zip(runs, ran(field, spec), strict=True):
        assert np.array_equal(one.outcomes.rows, other.outcomes.rows)


def test_how_far_it_is_rises_to_the_whole(field: BacktestInputs, spec: BacktestSpec) -> None:
    seen: list[tuple[int, int]] = []
    list(run_cells(plan(field, spec), threads=1, report=lambda done, of, _: seen.append((done, of))))
    assert seen == sorted(seen)
    whole = 12 * (1 + 2) * 3 * len(NAMES)
    assert seen[-1] == (whole, whole)
    assert {of for _, of in seen} == {whole}
    assert len({done for done, _ in seen}) == 2 * 3 * len(NAMES) + 1, "each cell is a step"


def test_options_reach_the_schemes_whose_elasticity_leaves_them_open(field: BacktestInputs, spec: BacktestSpec) -> None:
    asked = spec.model_copy(
        update={
            "eviction_overhead_s": 300, "resize_overhead_s": 120, "max_spot_vcpus": 64, "allocation_vcpus": 16,
            "reliable_count": 5, "reliable_vcpus": 2, "ceiling": False,
        }
    )  # fmt: skip
    tiered = setting_of(spec.scheme("proteus"), asked, field.reference, 2)
    assert (tiered.eviction_overhead_s, tiered.resize_overhead_s) == (300, 120)
    assert (tiered.max_spot_vcpus, tiered.allocation_vcpus, tiered.ceiling) == (64, 16, 0)
    assert (tiered.reliable_count, tiered.reliable_vcpus) == (5, 2)
    assert tiered.reliable_micros == field.reference.micros(2)
    saving = setting_of(spec.scheme("standard+checkpoint"), asked, field.reference, 2)
    assert (saving.eviction_overhead_s, saving.reliable_count, saving.max_spot_vcpus) == (0, 0, 64)
    nothing = setting_of(spec.scheme("on-demand"), asked, field.reference, 2)
    assert nothing == spec.scheme("on-demand").setting(field.reference, 2)


def test_an_elasticity_that_was_measured_takes_the_place_of_the_papers(field: BacktestInputs, prices: Path) -> None:
    asked = small_spec(
        prices,
        elasticity=[{"model": "checkpointing", "restart_s": 30}, {"model": "agileml", "eviction_overhead_s": 7}],
    )
    assert setting_of(asked.scheme("standard+checkpoint"), asked, field.reference, 1).restart_s == 30
    assert setting_of(asked.scheme("proteus"), asked, field.reference, 1).eviction_overhead_s == 7


def test_without_a_ceiling_schemes_buy_into_spikes(
    field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult]
) -> None:
    """In the small market prices are above on-demand several times a day, so some job meets one."""
    free = ran(field, spec.model_copy(update={"ceiling": False, "schemes": ["proteus"], "hours": [2]}))
    bound = [each for each in runs if each.cell.scheme == "proteus" and each.cell.hours == 2]
    assert any(not np.array_equal(a.outcomes.rows, b.outcomes.rows) for a, b in zip(free, bound, strict=True))


# Tell


@pytest.fixture(scope="module")
def result(field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult]) -> dict[str, Any]:
    return as_json(field, spec, runs, 1.25)


def test_the_json_has_the_fields_that_were_promised(result: dict[str, Any], runs: list[CellResult]) -> None:
    assert json.loads(json.dumps(result)) == result
    assert result["elapsed_s"] == 1.25
    assert result["fit"]["until"] == "2016-06-07T00:00:00Z"
    assert len(result["runs"]) == len(runs)
    assert set(result) >= {"fit", "runs", "elapsed_s"}
    promised = {
        "scheme",
        "zone",
        "hours",
        "starts",
        "relative_cost",
        "relative_runtime",
        "machine_hours",
        "evictions_per_job",
    }
    for run, source in zip(result["runs"], runs, strict=True):
        assert set(run) >= promised
        assert run["evictions_per_job"] == source.outcomes.evictions.mean()
        assert (run["scheme"], run["zone"], run["hours"], run["starts"]) == (
            source.cell.scheme, source.cell.zone, source.cell.hours, 12,
        )  # fmt: skip
        assert set(run["relative_cost"]) == set(run["relative_runtime"]) == {"mean", "p10", "p90", "se"}
        assert set(run["machine_hours"]) == {"on_demand", "paid", "free"}
        four = summary(source.outcomes.relative_cost)
        assert run["relative_cost"] == {"mean": four.mean, "p10": four.p10, "p90": four.p90, "se": four.se}
        used = source.outcomes.rows[:, [Outcome.ON_DEMAND_VCPU_S, Outcome.PAID_VCPU_S, Outcome.FREE_VCPU_S]]
        assert sum(run["machine_hours"].values()) == pytest.approx(used.sum() / (12 * 3600 * 8))
        assert 0 <= run["free_share"] <= 1
        assert run["cost_usd"]["total"] == pytest.approx(12 * run["cost_usd"]["mean"])


def test_on_demand_costs_what_the_reference_costs(result: dict[str, Any]) -> None:
    rows = [run for run in result["runs"] if run["scheme"] == "on-demand"]
    assert len(rows) == 6
    for run in rows:
        assert run["relative_cost"]["mean"] == pytest.approx(1, abs=1e-6)
        assert run["relative_runtime"]["mean"] == 1
        assert run["machine_hours"] == {"on_demand": 64 * run["hours"], "paid": 0, "free": 0}


def test_nobody_passes_the_bound_which_stands_beside_everybody(result: dict[str, Any]) -> None:
    bounds = {(run["zone"], run["hours"]): run for run in result["runs"] if run["scheme"] == CLAIRVOYANT}
    assert len(bounds) == 6
    for run in result["runs"]:
        bound = bounds[run["zone"], run["hours"]]["relative_cost"]["mean"]
        assert run["clairvoyant_cost"] == bound
        assert run["unfinished"] or run["relative_cost"]["mean"] >= bound


def test_the_csv_is_the_table(result: dict[str, Any], tmp_path: Path) -> None:
    write_csv(str(tmp_path / "out.csv"), result["runs"])
    with (tmp_path / "out.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(result["runs"])
    for line, run in zip(lines, result["runs"], strict=True):
        assert line["scheme"] == run["scheme"]
        assert float(line["relative_cost_mean"]) == run["relative_cost"]["mean"]
        assert float(line["machine_hours_free"]) == run["machine_hours"]["free"]


def test_a_row_of_text_has_a_cell_for_each_column(result: dict[str, Any]) -> None:
    assert all(len(cells(run)) == len(COLUMNS) for run in result["runs"])


# What is refused


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"zones": ["us-east-1f"]},
            r"--zones us-east-1f: is not a zone of .*; give each, all, or some of us-east-1a, us",
        ),
        ({"hours": [1, 90]}, r"--hours 90: a job of 90 h is given 317 h; there are 71\.9.* in the evaluation .*"),
        ({"reference_type": "z9.huge"}, r"--reference z9\.huge: is not on sale in the shipped catalogue"),
        ({"left_out": ["c4.xlarge", "m4.xlarge"]}, r"has only types that are left out; give other --leave-out"),
        ({"markets": ["m4.large/us-east-1a"]}, r"--market m4\.large/us-east-1a: has no prices in"),
        ({"fit_from": "2016-06-02T00:00", "fit_to": "2016-06-02T00:30"}, r"no market has an hour of prices in"),
    ],
)
def test_what_cannot_be_compared(prices: Path, fields: dict[str, Any], says: str) -> None:
    asked = small_spec(prices, schemes=["proteus"], **fields)
    with pytest.raises(InputError, match=says) as refused:
        plan(open_inputs(asked, quiet), asked)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"schemes": ["greedy"]}, r"^--scheme: there is no scheme 'greedy'; there are on-demand, "),
        ({"starts": 0}, r"^--starts: .* \(is 0\)$"),
        ({"hours": [0]}, r"^--hours: .* \(is 0\)$"),
        ({"max_spot_vcpus": 0}, r"^--max-vcpus: .* \(is 0\)$"),
        ({"billing": "free"}, r"^--billing: .*hourly-refund"),
        ({"elasticity": [{"model": "magic"}]}, r"^--elasticity: model is 'magic'"),
        ({"elasticity": [{"model": "agileml"}, {"model": "agileml"}]}, r"^--elasticity: one model is given twice"),
    ],
)
def test_a_request_that_is_none(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        backtest_spec(**fields)


def test_the_form_has_every_field_in_its_order() -> None:
    properties = BacktestSpec.model_json_schema()["properties"]
    assert [field["position"] for field in properties.values()] == list(range(len(properties)))
    assert all(field["title"] for field in properties.values())


def test_without_a_file_a_market_is_generated_and_told() -> None:
    asked = backtest_spec(schemes=["proteus"], markets=["m4.large/us-east-1a", "c4.large/us-east-1b"])
    field = open_inputs(asked, quiet)
    assert field.notes[0] == "no --prices given: the prices are those of the generated market of seed 0"
    assert sorted(map(str, field.markets)) == ["c4.large/us-east-1b", "m4.large/us-east-1a"]
    again = open_inputs(asked, quiet)
    assert field.traces[field.markets[0]] == again.traces[field.markets[0]]


# On real prices


@pytest.mark.slow
@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
@pytest.mark.parametrize(
    ("name", "days", "published"),
    [
        ("2015-spring", ("2015-03-11", "2015-04-30", "2015-05-01", "2015-05-31"), (0.199, 0.154)),
        ("2016-early-summer-m4", ("2016-05-06", "2016-05-31", "2016-06-01", "2016-06-21"), (0.195, 0.147)),
        ("2016-spring", ("2016-02-26", "2016-03-31", "2016-04-01", "2016-04-24"), (0.162, 0.141)),
    ],
)
def test_the_defaults_are_the_papers(name: str, days: tuple[str, ...], published: tuple[float, float]) -> None:
    folder = Path(os.environ["PROTEUS_TRACES"])
    windows = dict(zip(("fit_from", "fit_to", "evaluate_from", "evaluate_to"), days, strict=True))
    spec = backtest_spec(
        prices=str(folder / f"us-east-1-{name}.csv.gz"),
        catalog=str(folder / "catalog-us-east-1-2013-2017.csv"),
        schemes=["standard+checkpoint", "proteus"],
        zones=["all"],
        hours=[20],
        **windows,
    )
    field = open_inputs(spec, quiet)
    for each, cost in zip(ran(field, spec), published, strict=True):
        assert each.outcomes.relative_cost.mean() == pytest.approx(cost, abs=0.010)
        assert each.outcomes.finished.all()
