"""Benchmark `litz`: each part runs whole on a small size."""

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.litz import over_decomposition
from flows.cli.main import cli


def test_executors_a_core_are_compared_and_drawn(tmp_path: Path) -> None:
    subject = partial(over_decomposition.mlr_decomposition, 400, 3)
    picture = tmp_path / "picture.png"
    figures = list(over_decomposition.run(tmp_path, picture, (subject,), executors=(1, 2), rounds=1))
    assert [one.what for one in figures] == ["a pass of mlr, 2 executors a core"]
    assert figures[0].ours > 0
    assert picture.stat().st_size > 1000


def test_a_part_that_does_not_exist_is_refused() -> None:
    result = CliRunner().invoke(cli, ["bench", "litz", "--parts", "rotations"])
    assert result.exit_code == 2
    assert "'rotations': give " in result.output


@pytest.mark.parametrize("executors", [1, 3])
def test_the_work_of_a_clock_does_not_depend_on_the_executors(executors: int) -> None:
    params, parts, held, clocks = over_decomposition.mlr_decomposition(300, 5).cut(executors)
    assert len(parts) == executors
    assert sum(len(part["y"]) for part in parts) == params["n_examples"] == 300
    assert len(held["y"]) == 30
    assert clocks == 5
