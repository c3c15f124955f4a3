"""A net of PyTorch on real processes: the same file on one node, and on nodes that are killed, noticed and joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_process import proteus

pytest.importorskip("torch", reason="torch is not installed: `make torch`")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
NET = ("digits_net:Digits", "--code", str(EXAMPLES / "digits_net.py"), "--data", "digits")
EVENTS = "clock:3,kill,t1\nclock:5,join,t3\nclock:7,notice,t2,5\nclock:8,drain,t3\n"


def trained(tmp_path: Path, job: str, *options: str) -> dict[str, Any]:
    done = proteus(
        "train",
        *NET,
        "--clocks",
        "10",
        "--job",
        job,
        "--json",
        f"{job}.json",
        *options,
        cwd=tmp_path,
        home=tmp_path / "home",
    )
    assert done.code == 0, done.err
    figures: dict[str, Any] = json.loads((tmp_path / f"{job}.json").read_text())
    return figures


def model_of(tmp_path: Path, job: str) -> dict[str, bytes]:
    folder = tmp_path / "runs" / job / "blobs" / "jobs" / job / "model"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}


def test_kills_notices_and_joins_leave_the_bits_and_the_model_predicts(tmp_path: Path) -> None:
    trained(tmp_path, "alone", "--nodes", "r=1")
    (tmp_path / "events.csv").write_text(EVENTS)
    figures = trained(tmp_path, "storm", "--nodes", "r=1,t=2", "--events", "events.csv")
    assert len(figures["events"]) == 4
    files = model_of(tmp_path, "storm")
    assert sorted(files) == ["digits_net.py", "model.safetensors"]
    assert files == model_of(tmp_path, "alone")
    done = proteus(
        "predict", figures["model"], NET[0], *NET[1:], "--out", "p.csv", cwd=tmp_path, home=tmp_path / "home"
    )
    assert done.code == 0, done.err
    assert "of them as their labels say" in done.out + done.err


def test_the_best_model_of_those_evaluated_is_saved(tmp_path: Path) -> None:
    rising = ("--evaluate-every", "1", "--param", 'outer={"lr": 60, "momentum": 0}', "--nodes", "r=1", "--clocks", "3")
    last = trained(tmp_path, "last", *rising)
    best = trained(tmp_path, "best", *rising, "--param", "keep=best")
    losses = {clock: figures["loss"] for clock, figures in best["metrics_by_clock"]}
    assert best["metrics_by_clock"] == last["metrics_by_clock"]
    manifest = tmp_path / "runs" / "best" / "blobs" / "jobs" / "best" / "model" / "manifest.json"
    assert json.loads(manifest.read_text())["about"]["kept_clock"] == min(losses, key=lambda clock: losses[clock]) < 3
    assert best["metrics"]["loss"] == min(losses.values()) < last["metrics"]["loss"]
    assert model_of(tmp_path, "best")["model.safetensors"] != model_of(tmp_path, "last")["model.safetensors"]


def test_a_net_refuses_partitions_and_a_check_says_what_cannot_work(tmp_path: Path) -> None:
    done = proteus("train", *NET, "--partitions", "4", cwd=tmp_path, home=tmp_path / "home")
    assert (done.code, "--partitions 4: digits_net:Digits has 8 workers" in done.err) == (2, True)
    done = proteus("check", *NET, "--json", "check.json", cwd=tmp_path, home=tmp_path / "home")
    assert done.code == 0, done.err
    assert "a clock is 20 local steps of 8 workers: " in done.out
    assert "a machine reads 38.9 kB a clock, and pushes as much" in done.out
    assert len(json.loads((tmp_path / "check.json").read_text())["notes"]) == 4
    assert (
        "a fifth of the job's steps, at most 200, is synchronous: a machine reads and pushes 117 kB in each" in done.out
    )
    text = (EXAMPLES / "digits_net.py").read_text()
    (tmp_path / "lazy.py").write_text(text.replace("nn.Linear(64, 128)", "nn.LazyLinear(128)"))
    done = proteus("check", "lazy:Digits", "--data", "digits", cwd=tmp_path, home=tmp_path / "home")
    assert done.code == 1
    assert "lazy.py:" in done.out
    assert "model: parameter '0.weight' is lazy: give the layer its sizes" in done.out
