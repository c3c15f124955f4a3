"""The application of `proteus run` is named by its place, or by `--app`."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.main import cli


def test_the_application_is_named_in_one_of_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def local_run(options: Any, *_: Any, **__: Any) -> dict[str, Any]:
        asked.append(options)
        return {}

    monkeypatch.setattr("proteus_spot.flows.local.run.local_run", local_run)
    for arguments in (["mf", "--clocks", "3"], ["--app", "mf", "--clocks", "3"]):
        assert CliRunner().invoke(cli, ["run", *arguments]).exit_code == 0
    assert [options.app for options in asked] == ["mf", "mf"]
    assert sorted(asked[0].given) == sorted(asked[1].given) == ["--app", "--clocks", "3", "mf"]
    done = CliRunner().invoke(cli, ["run", "mf", "--app", "lda"])
    assert (done.exit_code, "APP mf and --app lda: give one of them" in done.output) == (2, True)
