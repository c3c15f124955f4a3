"""Benchmark `bgd`: the generated set, and what counts as a round."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.bgd.bgd import SETTINGS, run
from proteus_spot.benchmarks.papers.bgd.runs import BACK, LOST, ROUNDS, descend_under_preemption, partitions_of
from proteus_spot.benchmarks.papers.bgd.splice import N_FEATURES, POSITIONS, n_grams, splice_set


def test_features_are_the_n_grams_by_position() -> None:
    assert N_FEATURES == 47_028
    letters = np.zeros((2, POSITIONS), np.int64)
    letters[1, -1] = 3
    x = n_grams(letters).dense()
    assert x.sum(axis=1).tolist() == [558.0, 558.0]
    assert x[0, 0] == 1.0
    assert x[1, POSITIONS * 4 - 1] == 1.0  # the last letter at the last position
    assert x[1, -256 + 3] == 1.0  # AAAT, the last 4-gram
    assert np.flatnonzero(x[0] != x[1]).size == 8  # four n-grams hold the last letter


def test_a_set_depends_on_its_seed_alone_and_has_rare_positives() -> None:
    first, again, other = (splice_set(600, 100, 0.05, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.x.indices, again.x.indices)
    assert not np.array_equal(first.x.indices, other.x.indices)
    assert 0.02 < first.y.mean() < 0.09
    assert first.test_x.shape == (100, N_FEATURES)


@pytest.mark.papers
def test_stall_waits_and_elastic_goes_on() -> None:
    data = splice_set(560, 100, 0.1, 0)
    parts = partitions_of(data)
    curves = {case: descend_under_preemption(case, "constant step", parts, data) for case in ("elastic", "stall")}
    for curve in curves.values():
        assert len(curve.objective) == len(curve.seconds) == ROUNDS + 1
        assert sorted(curve.auprc) == list(range(0, ROUNDS + 1, 10))
        assert curve.seconds == sorted(curve.seconds)
    stall, elastic = curves["stall"].objective, curves["elastic"].objective
    assert stall[: LOST + 1] == elastic[: LOST + 1]
    assert set(stall[LOST : BACK + 1]) == {stall[LOST]}
    assert elastic[LOST + 1] == elastic[LOST]  # the round of the loss is done again
    assert elastic[BACK] < elastic[LOST + 2] < elastic[LOST]
    assert stall[ROUNDS] < stall[BACK]


def test_verdicts_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = list(run(tmp_path, tmp_path / "picture.png", examples=420, seeds=1, settings=SETTINGS[1:2]))
    printed = [line for line in capsys.readouterr().out.splitlines() if "hold" in line]
    claims = [one for one in figures if "hold" in one.note.split(";")[0]]
    assert len(printed) == len(claims) == 4
    for line, claim in zip(printed, claims, strict=True):
        factor = 1.001 if "0.1 %" in claim.what else 1.0
        assert (": holds" in line) == (claim.ours < factor * claim.beside)
    by_second = [one for one in figures if "at the second" in one.what]
    assert [one.beside_is for one in by_second] == ["no failure", "stall", "ignore"] * 2
    at_round = [one for one in figures if one.what.endswith(f"objective of stall at round {BACK}")]
    assert by_second[1].beside <= at_round[0].ours, "Stall's rounds take the seconds of all nodes"
    assert "redone rounds of elastic: 1 to 1" in by_second[0].note
    assert (tmp_path / "picture.png").stat().st_size > 1000
