"""The benchmark of nets, at a size that says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: `make torch`")

from proteus_spot.benchmarks.nets import kills, overhead, quality, same

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def test_all_parameters_have_the_bits_of_bare_diloco(tmp_path: Path) -> None:
    (found,) = same.run(tmp_path, clocks=3, steps=2)
    assert found.ours == found.beside > 50_000


def test_overhead_and_bytes_are_measured(tmp_path: Path) -> None:
    beyond, moved = overhead.run(tmp_path, [(1_000, 1.0)], clocks=3)
    assert beyond.beside == 2.5
    assert 0 < moved.ours < moved.beside


def test_repeated_steps_stand_beside_what_the_kills_leave(tmp_path: Path) -> None:
    (found,) = kills.run(tmp_path, rates=(360,), seconds=25)
    assert 1 <= found.beside <= found.ours < 4


def test_no_script_kills_the_last_transient_node() -> None:
    script = kills.script(120, 300)
    assert script.startswith("second:30,kill,t1\nsecond:60,kill,t2\nsecond:70,join,t4\nsecond:90,kill,t3\n")
    alive = 3
    for line in script.splitlines():
        alive += 1 if "join" in line else -1
        assert alive >= 1


def test_a_loss_stands_beside_that_of_synchronous_training(tmp_path: Path) -> None:
    for found in quality.run(tmp_path, steps=3):
        assert 0 < found.ours < 6
        assert 0 < found.beside < 6
