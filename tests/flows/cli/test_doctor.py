"""`proteus doctor`: a line and a fix for each finding, JSON, exit codes."""

import json
from pathlib import Path

import pytest

from tests.support.cli_process import proteus


def test_findings_and_fixes(tmp_path: Path) -> None:
    done = proteus("doctor", "--step", "5", cwd=tmp_path, home=tmp_path / "home")
    assert done.code == 1
    assert "good   database: is new" in done.out
    assert "WRONG  server: PREFECT_API_URL is not set\n       fix: set it" in done.out
    assert done.err.strip().endswith("1 of 2 checks found something wrong: server")


def test_json_and_a_good_step(tmp_path: Path) -> None:
    done = proteus("doctor", "--step", "3", "--json", "-", cwd=tmp_path, home=tmp_path / "home")
    assert done.code == 0, done.err
    findings = json.loads(done.out)["findings"]
    assert [(found["check"], found["good"]) for found in findings] == [
        ("subnets", True),
        ("security groups", True),
        ("bucket", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--step", "6"), "add --boot"),
        (("--step", "9"), "--step"),
        (("--budget", "1"), "--budget"),
        (("--boot", "--budget", "nan", "--step", "6"), "--budget"),
        (("absent.yaml",), "absent.yaml"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = proteus("doctor", *arguments, cwd=tmp_path, home=tmp_path / "home")
    assert done.code == 2
    assert said in done.err
