"""The help of the command: quick, of every verb and option; and JSON, which stands alone."""

import io
import json
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from proteus_spot.infra.version import program_commit
from tests.support.cli_process import environment, proteus


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("run", "--help"), ("--version",)])
def test_help_tells_and_ends_with_0(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    outcome = proteus(*arguments, cwd=tmp_path, home=tmp_path / "home", timeout_s=20)
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.startswith(("Usage: proteus", "proteus, version"))


def test_the_version_names_the_commit_of_the_clone_and_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[3]
    head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        pytest.skip("not a git checkout")
    said = proteus("--version", cwd=tmp_path, home=tmp_path / "home").out
    assert said.rstrip("+\n").endswith(f", commit {head.stdout[:12]}")
    assert f"version {tomllib.loads((root / 'pyproject.toml').read_text())['project']['version']} " in said
    archive = subprocess.run(
        ["git", "-C", str(root), "archive", "HEAD", "infra/commit.txt"], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.setattr("proteus_spot.infra.version._COMMIT", tmp_path / "infra" / "commit.txt")
    assert program_commit() == head.stdout[:12]
    (tmp_path / "infra" / "commit.txt").write_text("$Format:%H$\n")
    assert program_commit() == "unknown"


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def test_every_option_of_every_verb_says_what_it_is() -> None:
    from proteus_spot.flows.cli.main import cli

    commands = dict(_commands(cli, "proteus"))
    assert "proteus run" in commands
    for path, command in commands.items():
        assert command.help, path
        for option in command.get_params(click.Context(command)):
            assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{path} {option.name}"


def test_help_of_every_verb() -> None:
    from proteus_spot.flows.cli.main import cli

    for path, _ in _commands(cli, "proteus"):
        done = CliRunner().invoke(cli, [*path.split()[1:], "--help"])
        assert done.exit_code == 0, path
        assert done.output.startswith("Usage:"), path


def test_without_a_verb_the_help_is_shown(tmp_path: Path) -> None:
    outcome = proteus(cwd=tmp_path, home=tmp_path / "home", timeout_s=20)
    assert outcome.code == 2
    assert "Usage: proteus" in outcome.out + outcome.err


def test_help_imports_neither_prefect_nor_numpy() -> None:
    import sys

    code = "import sys, proteus_spot.flows.cli.main as command; "
    code += "print([name for name in ('prefect', 'numpy', 'boto3') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"


def test_json_goes_to_a_file_or_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from proteus_spot.flows.terminal.output import write_json

    write_json(None, {"a": 1})
    assert capsys.readouterr().out == ""
    write_json("-", {"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    write_json(str(tmp_path / "out.json"), {"a": 1})
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}


def test_the_support_hides_the_users_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTEUS_TICK_S", "1")
    assert "PROTEUS_TICK_S" not in environment(tmp_path / "home")
