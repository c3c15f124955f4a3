"""A backtest from its request to its result."""

from pathlib import Path

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.comparison import Comparison
from tests.support.backtests import quiet, small_file, small_spec


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BacktestSpec:
    monkeypatch.chdir(tmp_path)
    asked = {"schemes": ["on-demand", "proteus"], "zones": ["all"], "hours": [1], "starts": 4}
    return small_spec(small_file(tmp_path / "small.csv"), **asked)


def test_every_cell_is_run_and_its_figures_are_gathered(spec: BacktestSpec) -> None:
    comparison = Comparison(spec, threads=1, report=quiet)
    assert comparison.result == {}
    comparison.run()
    assert [ran.cell.scheme for ran in comparison.runs] == ["on-demand", "proteus"]
    assert [run["scheme"] for run in comparison.result["runs"]] == ["on-demand", "proteus"]


def test_each_number_of_reliable_machines_is_weighed(spec: BacktestSpec) -> None:
    comparison = Comparison(spec.model_copy(update={"reliable_counts": [1, 2]}), threads=1, report=quiet)
    comparison.run()
    assert [each["scheme"] for each in comparison.result["reliable"]] == ["proteus"]


def test_what_cannot_be_weighed_is_refused_before_anything_is_read(spec: BacktestSpec) -> None:
    asked = spec.model_copy(update={"schemes": ["on-demand"], "reliable_counts": [1]})
    with pytest.raises(InputError, match=r"^--reliable-counts: each scheme"):
        Comparison(asked, threads=1, report=lambda *_: pytest.fail("something was read"))
