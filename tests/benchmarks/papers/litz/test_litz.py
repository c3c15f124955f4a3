"""Benchmark `litz`: each part runs whole on a small size."""

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from proteus_spot.benchmarks.papers.litz import model_parallel, over_decomposition, rotation
from proteus_spot.flows.cli.main import cli


@pytest.mark.storm
def test_executors_a_core_are_compared_and_drawn(tmp_path: Path) -> None:
    subject = partial(over_decomposition.mlr_decomposition, 400, 3, 50)
    picture = tmp_path / "picture.png"
    figures = list(over_decomposition.run(tmp_path, picture, (subject,), executors=(1, 2), rounds=1))
    size = "400 examples of 784 inputs, 50 features"
    assert [one.what for one in figures] == [f"a pass of mlr, {size}, 2 executors a core"]
    assert "a core has 2 tasks in a pass, and each costs " in figures[0].note
    assert figures[0].ours > 0
    assert picture.stat().st_size > 1000


@pytest.mark.storm
def test_model_and_data_parallel_lda_are_compared_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    figures = list(
        model_parallel.run(tmp_path, picture, n_documents=200, topics=16, n_partitions=4, passes=6, rounds=1)
    )
    assert [one.unit for one in figures] == ["passes", "s", ""]
    assert 1 <= figures[0].ours <= 6
    assert picture.stat().st_size > 1000


@pytest.mark.storm
def test_rotation_through_the_engine_comes_to_the_counts_of_the_bare_loop(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    figures = list(rotation.run(tmp_path, picture, n_documents=200, topics=16, passes=3, rounds=1))
    assert figures[0].ours > 0 < figures[0].beside
    assert "ms more than in the bare loop" in figures[0].note
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
    assert clocks == 6
