"""The examples of the docs train, and pass the check of an application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.infra.datasets.arrays import read
from proteus_spot.psengine.application_check import check_application
from proteus_spot.psengine.apps.registry import resolve

torch = pytest.importorskip("torch", reason="torch is not installed: `make torch`")

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 60


def source(tmp_path: Path, kind: str) -> str:
    if kind == "text":
        (tmp_path / "a.txt").write_text(TEXT)
        return str(tmp_path / "a.txt")
    if kind == "images":
        y = np.arange(60) % 10
        x = (
            np.random.default_rng(0).integers(0, 30, (60, 14, 14), np.uint8)
            + (25 * y[:, None, None]).astype(np.uint8) // 2
        )
        np.savez(tmp_path / "a.npz", x=x, y=y.astype(np.uint8))
        return str(tmp_path / "a.npz")
    return kind


@pytest.mark.parametrize(
    ("app", "kind", "params"),
    [
        ("digits_net:Digits", "digits", {}),
        ("lora_net:Adapted", "digits", {"local_steps": 3}),
        (
            "char_net:Characters",
            "text",
            {"local_steps": 2, "warm_steps": 0, "layers": 1, "width": 16, "heads": 2, "context": 16},
        ),
        ("image_net:Images", "images", {"local_steps": 2, "batch_size": 8}),
    ],
)
def test_an_example_passes_the_check(
    app: str, kind: str, params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    data = read(source(tmp_path, kind), 2)
    made = resolve(app, {**data.sizes, "job_seed": 1, **params, "workers": 2})
    report = check_application(made, list(data.parts(0)), data.heldout(), seed=0)
    assert report.faults == ()
