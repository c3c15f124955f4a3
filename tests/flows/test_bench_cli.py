"""`proteus bench`: figures beside a peer or a limit, for people and for machines."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import NAMES
from flows.cli import cli


def test_help_names_the_benchmarks() -> None:
    outcome = CliRunner().invoke(cli, ["bench", "--help"])
    assert outcome.exit_code == 0
    assert ", ".join(NAMES) in " ".join(outcome.output.split())


def test_an_unknown_one_is_refused_with_those_there_are() -> None:
    outcome = CliRunner().invoke(cli, ["bench", "prices", "speed"])
    assert outcome.exit_code == 2
    assert f"speed: is no benchmark; there are {', '.join(NAMES)}" in outcome.output


def test_each_figure_has_its_peer_and_the_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROTEUS_TRACES", raising=False)
    target = tmp_path / "bench.json"
    outcome = CliRunner().invoke(cli, ["bench", "prices", "--json", str(target)])
    assert outcome.exit_code == 0, outcome.output
    (figure,) = json.loads(target.read_text())["figures"]
    assert figure["benchmark"] == "prices"
    assert figure["ratio"] == pytest.approx(figure["ours"] / figure["beside"])
    assert "pyarrow's bare read_csv" in outcome.output
