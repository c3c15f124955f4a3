"""The benchmark of nets, at a size that says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: `make torch`")

from proteus_spot.benchmarks.nets import overhead, quality, same

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def test_all_parameters_have_the_bits_of_bare_diloco(tmp_path: Path) -> None:
    (found,) = same.run(tmp_path, clocks=3, steps=2)
    assert found.ours == found.beside > 50_000


def test_overhead_and_bytes_are_measured(tmp_path: Path) -> None:
    beyond, moved = overhead.run(tmp_path, [(1_000, 1.0)], clocks=3)
    assert beyond.beside == 2.5
    assert 0 < moved.ours < moved.beside


def test_a_loss_stands_beside_that_of_synchronous_training(tmp_path: Path) -> None:
    for found in quality.run(tmp_path, steps=3):
        assert 0 < found.ours < 6
        assert 0 < found.beside < 6
