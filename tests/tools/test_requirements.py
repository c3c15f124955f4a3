"""The ranges of pyproject.toml: an old pip must not look through every version of a package."""

import tomllib
from importlib.metadata import requires
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement


def test_botocore_and_boto3_are_those_that_aiobotocore_takes() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    lines = chain(project["dependencies"], project["optional-dependencies"]["local"])
    ours = {wanted.name: wanted for wanted in map(Requirement, lines)}
    theirs = next(Requirement(text) for text in requires("aiobotocore") or () if Requirement(text).name == "botocore")
    assert ours["botocore"].specifier == ours["boto3"].specifier == theirs.specifier
