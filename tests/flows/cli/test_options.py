"""How an application is named on the command line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.job_options import JobCommand, application_options, job_options
from proteus_spot.flows.cli.options import given_options
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.training.application_checks import application


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_are_taken_as_they_are() -> None:
    @click.command(cls=JobCommand)
    @click.argument("app")
    @application_options
    def train(app: str, job: Mapping[str, Any]) -> None:
        click.echo(json.dumps([app, job["training"]]))

    default = {"code": "", "app_params": [], "data": None, "label": "", "empty": "refuse"}
    assert json.loads(CliRunner().invoke(train, ["mlr"]).output) == ["mlr", default]
    said = CliRunner().invoke(train, ["a:B", "--code", "a.py", "--param", "k=1", "--param", "s=x"]).output
    assert json.loads(said) == ["a:B", {**default, "code": "a.py", "app_params": ["k=1", "s=x"]}]


def test_options_that_were_given_make_a_command_line_again() -> None:
    @click.command(cls=JobCommand)
    @job_options("training.app_params")
    @click.option("--job", "job_id")
    @click.option("--hours", type=float, default=2.0)
    @click.option("--dir", "directory", type=click.Path(path_type=Path))
    @click.option("--quiet", "-q", is_flag=True)
    @click.option("--follow/--no-follow", default=True)
    @click.argument("name", required=False)
    def run(**_: Any) -> None:
        click.echo(repr(given_options(click.get_current_context(), "job_id")))

    def given(*arguments: str) -> str:
        done = CliRunner().invoke(run, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output.strip()

    assert given() == given("--job", "mine") == given("word") == "()"
    assert given("-q", "--hours", "0.30", "--dir", "a b", "--param", "k=1", "--job", "x", "--param", "s=it's") == (
        """('--param', 'k=1', '--param', "s=it's", '--hours', '0.3', '--dir', 'a b', '--quiet')"""
    )
    assert given("--no-follow") == "('--no-follow',)"
    assert given("--hours", "2") == "('--hours', '2')", "also where it is the default"


def test_values_are_json_where_they_can_be() -> None:
    texts = ["k=3", "step=0.5", "words=[1, 2]", "flag=true", "name=Lloyd's", "empty=", "of=a=b", 'quoted="7"']
    assert application("APP", "mlr", None, texts).params == {
        "k": 3,
        "step": 0.5,
        "words": [1, 2],
        "flag": True,
        "name": "Lloyd's",
        "empty": "",
        "of": "a=b",
        "quoted": "7",
    }


@pytest.mark.parametrize("text", ["k", "=3", "a b=3", "3=3", ""])
def test_a_parameter_is_a_name_and_a_value(text: str) -> None:
    with pytest.raises(InputError, match=f"^--param {text}: want NAME=VALUE"):
        application("APP", "mlr", None, [text])
    with pytest.raises(InputError, match=r"^--param k=4: k was given before; give it once"):
        application("APP", "mlr", None, ["k=3", "k=4"])


def test_numbers_that_no_job_can_keep_stay_text() -> None:
    assert application("APP", "mlr", None, ["a=NaN", "b=-Infinity"]).params == {"a": "NaN", "b": "-Infinity"}


def test_code_is_a_path_from_here_or_a_url(here: Path) -> None:
    assert application("APP", "mlr", None, []).code == ""
    assert application("APP", "a:B", "sub/a.py", []).code == str(here / "sub" / "a.py")
    assert application("APP", "a:B", "s3://bucket/a.py", []).code == "s3://bucket/a.py"
    (here / "mine.py").touch()
    assert application("APP", "mine:B", None, []).code == str(here / "mine.py")


def test_what_is_installed_needs_no_code(here: Path) -> None:
    assert application("APP", "proteus_spot.psengine.apps.mlr:MultinomialLogisticRegression", None, []).code == ""


def test_what_is_nowhere_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^APP mine:B: there is no mine\.py here, and mine is not installed; give"):
        application("APP", "mine:B", None, [])
    for place in (here / "mine", here / "mine" / "deep"):
        place.mkdir()
        (place / "__init__.py").touch()
    monkeypatch.syspath_prepend(here)  # a package that lies here is found by us, and by no machine
    for app in ("mine:B", "mine.deep:B"):
        with pytest.raises(InputError, match=rf"^APP {app}: a package travels as a wheel: pip wheel --no-deps \. and"):
            application("APP", app, None, [])
