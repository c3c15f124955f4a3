"""What is missing of an extra is named with the command that installs it."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proteus_spot.infra import extras
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import EXTRAS, missing_of, need_extra

ROOT = Path(__file__).parents[2]


class Denied:
    """A finder that has no module of these names, as some environments refuse them: with an error."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self.names:
            raise ImportError(f"{name} is refused")


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_missing_module_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, is_refused: bool) -> None:
    if is_refused:
        monkeypatch.setattr(sys, "meta_path", [Denied("optuna"), *sys.meta_path])
    else:
        monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "optuna" else find_spec(name))
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    assert missing_of("sweeps") == "optuna"
    line = "a sweep: needs optuna, which is not installed: pip install 'proteus-spot[sweeps]'"
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        need_extra("sweeps", "a sweep")


@pytest.mark.parametrize("extra", ["local", "sweeps", "neural", "postgres"])
def test_nothing_is_missing_here(extra: str) -> None:
    assert missing_of(extra) is None
    need_extra(extra, "a test")


def test_the_modules_are_those_of_the_packages_in_pyproject() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    owners = packages_distributions()
    for extra, modules in EXTRAS.items():
        names = {canonicalize_name(Requirement(line).name) for line in listed[extra]}
        installed = [module for module in modules if module in owners]
        assert {canonicalize_name(owners[module][0]) for module in installed} <= names, extra
