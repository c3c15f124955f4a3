"""The same jobs with each number of reliable machines: what is run, what is written, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.commands.planning.backtest import backtest
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs, open_inputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.job_runs import CellResult, plan, run_cells
from proteus_spot.studies.backtest.reliable_counts import COLUMNS, Numbers, as_records, rows, run_numbers, tiered
from tests.support.backtests import quiet, small_file, small_spec

COUNTS = [1, 2, 3]
ASKED: dict[str, Any] = {
    "hours": [1],
    "zones": ["all"],
    "schemes": ["on-demand", "standard+checkpoint", "proteus", "best", "clairvoyant"],
    "reliable_counts": COUNTS,
}


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


@pytest.fixture(scope="module")
def spec(prices: Path) -> BacktestSpec:
    return small_spec(prices, **ASKED)


@pytest.fixture(scope="module")
def field(spec: BacktestSpec) -> BacktestInputs:
    return open_inputs(spec, quiet)


@pytest.fixture(scope="module")
def runs(field: BacktestInputs, spec: BacktestSpec) -> list[CellResult]:
    return list(run_cells(plan(field, spec), threads=1, report=quiet))


def weighed(field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult]) -> list[Numbers]:
    return run_numbers(field, spec, runs, threads=1, report=quiet)


@pytest.fixture(scope="module")
def numbers(field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult]) -> list[Numbers]:
    return weighed(field, spec, runs)


def test_each_scheme_with_reliable_machines_is_run_with_each_number(
    field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult], numbers: list[Numbers]
) -> None:
    assert [each.cell.scheme for each in numbers] == ["proteus", "best"]
    for each in numbers:
        assert [one.count for one in each.weighed] == COUNTS
        for count, ran in zip(COUNTS, each.runs, strict=True):
            alone = spec.model_copy(update={"schemes": [each.cell.scheme], "reliable_count": count})
            (same,) = run_cells(plan(field, alone), threads=1, report=quiet)
            assert np.array_equal(ran.outcomes.rows, same.outcomes.rows)


def test_the_comparison_stays_as_it_is_and_its_own_number_is_taken_from_it(
    runs: list[CellResult], numbers: list[Numbers]
) -> None:
    compared = {ran.cell: ran for ran in runs}
    for each in numbers:
        assert each.runs[COUNTS.index(3)] is compared[each.cell]


def test_fewer_cost_less_and_the_ratio_says_which_will_do(numbers: list[Numbers]) -> None:
    for each in as_records(numbers):
        costs = [one["relative_cost"]["mean"] for one in each["numbers"]]
        assert costs == sorted(costs)
        assert [bool(one["why_not"]) for one in each["numbers"]] == [True, True, False]
        assert each["cheapest"] == 3
        for one in each["numbers"]:
            assert one["cost_with_failures"] == pytest.approx(one["relative_cost"]["mean"] / (1 - one["lost_share"]))


def test_what_is_known_of_the_model_lets_fewer_do(
    field: BacktestInputs, spec: BacktestSpec, runs: list[CellResult]
) -> None:
    tier = {"model_bytes": 1e9, "clocks_per_s": 0.01, "link_bytes_per_s": 1e8}
    for each in as_records(weighed(field, spec.model_copy(update={"reliable_tier": tier}), runs)):
        assert each["cheapest"] == 1


def test_the_standard_strategys_ratio_is_that_of_the_cluster_which_it_buys(
    field: BacktestInputs, spec: BacktestSpec
) -> None:
    asked = spec.model_copy(update={"schemes": ["standard+agileml"], "reliable_counts": [2]})
    ran = list(run_cells(plan(field, asked), threads=1, report=quiet))
    assert weighed(field, asked, ran)[0].weighed[0].ratio == 512 / 8


def test_a_row_of_text_has_a_cell_for_each_column(numbers: list[Numbers]) -> None:
    shown = list(rows(as_records(numbers)))
    assert len(shown) == 2 * len(COUNTS)
    assert {len(row) for row in shown} == {len(COLUMNS)}
    assert [row[-1] for row in shown if row[3] == "3"] == ["the cheapest that suffices"] * 2


def test_schemes_that_fix_their_number_cannot_be_weighed(prices: Path) -> None:
    fixed = {"model": "agileml", "reliable_count": 5}
    for more in ({"schemes": ["on-demand", "standard+checkpoint"]}, {"elasticity": [fixed]}):
        with pytest.raises(InputError, match=r"--reliable-counts: each scheme .* fixes the number"):
            tiered(small_spec(prices, **{**ASKED, **more}))
    assert tiered(small_spec(prices, schemes=["on-demand"])) == []


# Through the verb


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    small_file(tmp_path / "small.csv")
    return tmp_path


VERB = ("--prices", "small.csv", "--hours", "1", "--starts", "6", "--threads", "1", "--zones", "all")


def test_the_verb_tells_the_numbers_apart_from_the_table(here: Path) -> None:
    (here / "tier.json").write_text('{"most_ratio": 100}')
    asked = (*VERB, "--scheme", "proteus", "--reliable-counts", "2,3", "--reliable-tier", "tier.json")
    done = CliRunner().invoke(backtest, [*asked, "--json", "out.json", "--report", "out.html"], catch_exceptions=False)
    result = json.loads((here / "out.json").read_text())
    assert [row["scheme"] for row in result["runs"]] == ["proteus"]
    (told,) = result["reliable"]
    assert (told["scheme"], told["zone"], told["hours"], told["cheapest"]) == ("proteus", "all", 1, 2)
    assert told["numbers"][1]["relative_cost"] == result["runs"][0]["relative_cost"]
    assert "the cheapest that suffices" in done.stdout
    assert "Reliable machines: the same jobs with each number of them" in (here / "out.html").read_text()
    assert not (here / "runs").exists()
    plain = CliRunner().invoke(backtest, [*VERB, "--scheme", "on-demand", "--json", "-"], catch_exceptions=False)
    assert "reliable" not in json.loads(plain.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--reliable-counts 1,2 --scheme on-demand", "--reliable-counts: each scheme"),
        ("--reliable-tier tier.json", "has no effect alone; add --reliable-counts"),
        ("--reliable-counts 1 --reliable-tier wrong.json", r"wrong\.json: links: is not a number of a reliable tier"),
        (
            "--reliable-counts 1 --reliable-tier list.json",
            r"list\.json: is not a JSON object; write numbers of a reliable",
        ),
        ("--reliable-counts 1 --scheme best --explain 2016-06-08", "--explain: shows one job; --reliable-counts"),
    ],
)
def test_what_cannot_be_weighed_is_said_and_nothing_is_written(here: Path, arguments: str, said: str) -> None:
    for name, text in (("tier.json", "{}"), ("wrong.json", '{"links": 1}'), ("list.json", "[]")):
        (here / name).write_text(text)
    before = sorted(here.rglob("*"))
    with pytest.raises(InputError, match=said) as caught:
        CliRunner().invoke(backtest, [*VERB, *arguments.split()], catch_exceptions=False)
    assert caught.value.exit_code == 2
    assert sorted(here.rglob("*")) == before
