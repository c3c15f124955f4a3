"""`proteus bench`: figures beside a peer or a limit, for people and for machines."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.market.backtest_field import FILES, midnight_s, real
from proteus_spot.benchmarks.market.backtest_workload import whole_table
from proteus_spot.benchmarks.runner import NAMES
from proteus_spot.flows.cli.main import cli
from proteus_spot.studies.backtest.backtest_inputs import open_inputs
from proteus_spot.studies.backtest.backtest_spec import backtest_spec
from tests.support.backtests import quiet, small_file


def test_help_names_the_benchmarks() -> None:
    outcome = CliRunner().invoke(cli, ["bench", "--help"])
    assert outcome.exit_code == 0
    assert ",".join(NAMES) in "".join(outcome.output.split())  # a line may end at the hyphen of a name


def test_an_unknown_one_is_refused_with_those_there_are() -> None:
    outcome = CliRunner().invoke(cli, ["bench", "prices", "speed"])
    assert outcome.exit_code == 2
    assert f"speed: is not a benchmark; give one of {', '.join(NAMES)}" in outcome.output


def test_each_figure_has_its_peer_and_the_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROTEUS_TRACES", raising=False)
    target = tmp_path / "bench.json"
    outcome = CliRunner().invoke(cli, ["bench", "prices", "--json", str(target)])
    assert outcome.exit_code == 0, outcome.output
    (figure,) = json.loads(target.read_text())["figures"]
    assert figure["benchmark"] == "prices"
    assert figure["ratio"] == pytest.approx(figure["ours"] / figure["beside"])
    assert "pyarrow's bare read_csv" in outcome.output


def test_what_was_measured_is_told_before_the_next_figure_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(scratch: Path) -> Iterator[Figure]:
        yield figure("prices", "a read", "s", [1.0], [2.0], "the limit")
        raise RuntimeError("no more")

    monkeypatch.setattr("proteus_spot.benchmarks.market.prices.run", measured)
    outcome = CliRunner().invoke(cli, ["bench", "prices"])
    assert str(outcome.exception) == "no more"
    assert "a read: 1 s, the limit 2\n" in outcome.stderr


def test_the_whole_table_is_measured_once_beside_what_is_asked(tmp_path: Path) -> None:
    prices = str(small_file(tmp_path / "small.csv"))
    told = whole_table("small", prices=prices, schemes=["on-demand", "proteus"], hours=[1], starts=3)
    assert told.what == "the paper's whole table, 6 cells of 3 jobs, 2 threads"
    assert (told.beside, told.beside_is, told.note) == (180, "the most asked for", "small; run once")
    assert told.ours_spread == (told.ours, told.ours)
    assert told.ours > 0


@pytest.mark.slow
@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
def test_the_whole_table_is_of_the_same_months_as_the_script() -> None:
    months, folder = FILES[1], Path(os.environ["PROTEUS_TRACES"])
    script = real(folder, months)
    verb = open_inputs(backtest_spec(schemes=["proteus"], **months.asked(folder)), quiet)
    evaluation = verb.windows.evaluation
    assert (evaluation.from_s, evaluation.until_s) == (script.from_s, script.until_s)
    assert (verb.windows.fit.from_s, verb.windows.fit.until_s) == tuple(
        map(midnight_s, (months.fit_from, months.fit_until))
    )
    assert (verb.markets, verb.reference) == (script.markets, script.reference)


def test_a_number_of_nodes_that_there_is_no_layout_for_is_refused() -> None:
    outcome = CliRunner().invoke(cli, ["bench", "tiering", "--nodes", "16,17"])
    assert outcome.exit_code == 2
    assert "'17': give 16, 32 or 64, or several with commas between them" in outcome.output


def test_a_figure_that_tiering_does_not_have_is_refused() -> None:
    outcome = CliRunner().invoke(cli, ["bench", "tiering", "--figures", "12,16"])
    assert outcome.exit_code == 2
    assert "'16': give 11, 12, 13 or 14, or several with commas between them" in " ".join(outcome.output.split())


def test_nodes_and_pictures_are_asked_of_the_three_that_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "proteus_spot.benchmarks.papers.many_nodes.tiering.run", lambda scratch, **options: asked.append(options) or []
    )
    monkeypatch.setattr(
        "proteus_spot.benchmarks.market.tick.run", lambda scratch, **options: asked.append(options) or []
    )
    arguments = ["bench", "tick", "tiering", "--nodes", "16,64", "--pictures", str(tmp_path)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert asked == [{}, {"nodes": (16, 64), "picture": tmp_path / "tiering.png"}]
    asked.clear()
    assert CliRunner().invoke(cli, ["bench", "tick", "tiering", "--figures", "12,13"]).exit_code == 0
    assert asked == [{}, {"figures": (12, 13), "picture": None}]
