"""A backtest from its request to its result: what is kept while it runs, and what is left when it is done."""

from pathlib import Path

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.comparison import Comparison
from proteus_spot.studies.backtest.job_runs import DEFAULT_DIRECTORY
from tests.support.backtests import quiet, small_file, small_spec


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BacktestSpec:
    monkeypatch.chdir(tmp_path)
    asked = {"schemes": ["on-demand", "proteus"], "zones": ["all"], "hours": [1], "starts": 4}
    return small_spec(small_file(tmp_path / "small.csv"), **asked)


def kept(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_what_is_done_is_kept_when_it_breaks_off_and_taken_when_it_goes_on(spec: BacktestSpec) -> None:
    def breaks_off(done: int, of: int, what: str) -> None:
        if what.startswith("proteus"):
            raise KeyboardInterrupt

    broken = Comparison(spec, threads=1, resume=True, report=breaks_off)
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    assert ([ran.cell.scheme for ran in broken.runs], broken.result) == (["on-demand"], {})
    assert len(kept(DEFAULT_DIRECTORY)) == 1

    again = Comparison(spec, threads=1, resume=True, report=quiet)
    again.run()
    assert [(ran.cell.scheme, ran.kept) for ran in again.runs] == [("on-demand", True), ("proteus", False)]
    assert [run["scheme"] for run in again.result["runs"]] == ["on-demand", "proteus"]
    again.forget()
    assert kept(DEFAULT_DIRECTORY) == []


def test_a_directory_that_was_asked_for_keeps_its_cells(spec: BacktestSpec, tmp_path: Path) -> None:
    comparison = Comparison(spec, directory=tmp_path / "cells", threads=1, resume=False, report=quiet)
    comparison.run()
    comparison.forget()
    assert len(kept(tmp_path / "cells")) == 2
    assert not DEFAULT_DIRECTORY.exists()


def test_the_cells_of_each_number_of_reliable_machines_are_forgotten_too(spec: BacktestSpec) -> None:
    comparison = Comparison(
        spec.model_copy(update={"reliable_counts": [1, 2]}), threads=1, resume=False, report=quiet
    )  # fmt: skip
    comparison.run()
    assert [each["scheme"] for each in comparison.result["reliable"]] == ["proteus"]
    assert len(kept(DEFAULT_DIRECTORY)) == 4
    comparison.forget()
    assert kept(DEFAULT_DIRECTORY) == []


def test_what_cannot_be_weighed_is_refused_before_anything_is_read(spec: BacktestSpec) -> None:
    asked = spec.model_copy(update={"schemes": ["on-demand"], "reliable_counts": [1]})
    with pytest.raises(InputError, match=r"^--reliable-counts: each scheme"):
        Comparison(asked, threads=1, resume=False, report=lambda *_: pytest.fail("something was read"))
