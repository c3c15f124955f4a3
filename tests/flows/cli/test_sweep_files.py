"""A wrong sweep.yaml, as typed: every verb that takes one ends with 2 and one line, and nothing is written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from proteus_spot.flows.cli.commands.sweeps.sweep import sweep
from tests.support.cli_process import inside, proteus

GOOD: Mapping[str, Any] = {
    "trial": "my_trial:train",
    "code": "my_trial.py",
    "space": {"alpha": {"log": [1.0e-5, 1.0e-1], "points": 2}},
    "metric": {"name": "loss"},
    "max_trial_steps": 5,
}
#: What is changed in the file -> what the line says of it.
WRONG: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "no points": ({"space": {"alpha": {"log": [1, 2]}}}, "s.yaml: space.alpha: a grid needs points of a range"),
    "no function": ({"trial": "my_trial:walk"}, "s.yaml: code my_trial.py: has no walk of trial my_trial:walk"),
    "no code": ({"code": "none.py"}, "s.yaml: code none.py: cannot be read"),
    "no data": ({"data": "none.csv"}, "s.yaml: data: none.csv is not there"),
    "misspelt": ({"max_steps": 3}, "s.yaml: max_steps: is not known; fix its name, or leave it out"),
    "no metric": ({"metric": None}, "s.yaml: metric: must be a mapping"),
}
TAKES_A_FILE = [
    name
    for name, verb in sweep.commands.items()
    if any(isinstance(each, click.Argument) and isinstance(each.type, click.Path) for each in verb.params)
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with the file of a trial."""
    directory = tmp_path / "here"
    directory.mkdir()
    (directory / "my_trial.py").write_text("def train(trial):\n    pass\n")
    return directory


def test_there_are_such_verbs() -> None:
    assert "local" in TAKES_A_FILE


@pytest.mark.parametrize("name", list(WRONG))
@pytest.mark.parametrize("verb", TAKES_A_FILE)
def test_a_wrong_file_is_one_line_and_nothing_is_written(here: Path, verb: str, name: str) -> None:
    changed, says = WRONG[name]
    (here / "s.yaml").write_text(yaml.safe_dump({**GOOD, **changed}))
    outcome = inside("sweep", verb, "s.yaml", cwd=here, home=here.parent / "home")
    assert outcome.code == 2, outcome
    (line,) = outcome.err.splitlines()
    assert line.replace(f"{here}/", "").startswith(f"proteus: {says}")
    assert sorted(path.name for path in here.iterdir()) == ["my_trial.py", "s.yaml"]


def test_a_process_of_its_own_says_the_same(here: Path) -> None:
    (here / "s.yaml").write_text("trial: [")
    outcome = proteus("sweep", "local", "s.yaml", cwd=here, home=here.parent / "home")
    assert (outcome.code, outcome.out, len(outcome.err.splitlines())) == (2, "", 1), outcome
    assert outcome.err.startswith("proteus: s.yaml: line ")
