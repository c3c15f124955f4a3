"""`proteus train`: the options for the ways in which built-in applications train."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.main import cli
from proteus_spot.flows.local_training import TrainRun
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.local_nodes.node_training import LocalJob
from proteus_spot.tasks.training.application_checks import FEATURES


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["kmeans", "--parallel", "model"],
            "app 'kmeans' trains in one way alone; leave parallel out: lda, mf have it",
        ),
        (["lda", "--parallel", "model", "--staleness", "2"], "with model nothing is stale, and staleness is 2; want 0"),
        (["lda", "--param", "blocks=2"], "app 'lda' has no parameter blocks any more; want parallel=model"),
        (["mf", "--staleness-aware"], "unexpected keyword argument 'staleness_aware'"),
        (["mlr", "--solver", "lbfgs"], "unexpected keyword argument 'solver'"),
        (["bgd", "--missing", "stall", "--param", "missing=ignore"], "missing was given before; give it once"),
        (["mf", "--until", "rsme<=0.8"], "--until: mf has no figure 'rsme'; want one of rmse, mae"),
        (["bgd", "--passes", "3"], "--passes: bgd does not say what a pass is; give clocks instead"),
        (
            ["bgd", "--max-partitions-per-node", "5000"],
            "--max-partitions-per-node: must be at most 4096 (is 5000); fix the option",
        ),
        (["lda", "--parallel", "data", "--param", "parallel=model"], "parallel was given before; give it once"),
    ],
)
def test_what_an_application_does_not_have_is_refused_in_one_line(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(cli, ["train", *arguments, "--dir", str(tmp_path / "run")])
    assert isinstance(result.exception, InputError), "which the command prints, with exit code 2"
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_the_options_are_parameters_and_are_repeated_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Mapping[str, Any], list[str]]] = []

    def train(job: LocalJob, run: TrainRun, interrupts: Any, quiet: bool) -> dict[str, Any]:
        seen.append((job.training.app_params, run.again.partition(" --dir ")[2].split(maxsplit=1)[1:]))
        return {}

    monkeypatch.setattr("proteus_spot.flows.local_training.train_locally", train)
    arguments = ["--param", "k=5", "--parallel", "model"]
    assert CliRunner().invoke(cli, ["train", "lda", *arguments]).exit_code == 0
    assert CliRunner().invoke(cli, ["train", "mlr", "--staleness-aware"]).exit_code == 0
    descent = ["--solver", "gradient", "--missing", "ignore", "--approximation", "redone"]
    assert CliRunner().invoke(cli, ["train", "bgd", *descent]).exit_code == 0
    params, given = zip(*seen, strict=True)
    assert params[0] == {"k": 5, "parallel": "model"}
    assert params[1].items() >= {"staleness_aware": True, "features": FEATURES}.items()
    assert params[2] == {"solver": "gradient", "missing": "ignore", "approximation": "redone"}
    assert given[:2] == (["--param k=5 --parallel model"], ["--staleness-aware"])
