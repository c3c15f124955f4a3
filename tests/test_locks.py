"""The locks pin every file that is installed, agree with each other and with what pyproject.toml wants."""

import re
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK, NODE_LOCK = "requirements.lock", "requirements-node.lock"
#: What a node does not need: servers, flows, the state database, pictures, readers of users' files, what decides.
NOT_ON_NODES = {
    *("prefect", "fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "flask", "werkzeug", "moto", "boto3"),
    *("matplotlib", "bokeh", "pillow", "pyarrow", "rich", "pytest", "setuptools", "uv"),
    *("jax", "jaxlib", "optax", "optuna", "lightgbm"),
}

_PACKAGE = re.compile(r"([a-z0-9][a-z0-9-]*)==([A-Za-z0-9.+!]+)( ; [a-zA-Z0-9_ .<>=!'()]+)? \\")
_HASH = re.compile(r"    --hash=sha256:([0-9a-f]{64})( \\)?")


@dataclass(frozen=True)
class Locked:
    version: str
    hashes: frozenset[str]


def read_lock(text: str) -> dict[str, Locked]:
    """Return the packages of a lock by name; ValueError for a line that pins no file."""
    found: dict[str, Locked] = {}
    goes_on = False
    name = ""
    for line in text.splitlines():
        if line.startswith("#") and not goes_on:
            continue
        if goes_on and (of := _HASH.fullmatch(line)):
            goes_on = of[2] is not None
            found[name] = Locked(found[name].version, found[name].hashes | {of[1]})
        elif not goes_on and (package := _PACKAGE.fullmatch(line)):
            name, goes_on = package[1], True
            if name in found:
                raise ValueError(f"{name} twice")
            found[name] = Locked(package[2], frozenset())
        else:
            raise ValueError(line)
    if goes_on:
        raise ValueError(f"{name} has no end")
    return found


@pytest.fixture(scope="module")
def locks() -> dict[str, dict[str, Locked]]:
    return {name: read_lock((ROOT / name).read_text()) for name in (LOCK, NODE_LOCK)}


@pytest.fixture(scope="module")
def project() -> dict[str, dict[str, list[str]]]:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {
        "": {"": told["project"]["dependencies"]},
        "extras": told["project"]["optional-dependencies"],
        "groups": told["dependency-groups"],
    }


@pytest.mark.parametrize("name", [LOCK, NODE_LOCK])
def test_every_line_pins_files_by_their_hash_and_names_no_address(
    name: str, locks: dict[str, dict[str, Locked]]
) -> None:
    assert len(locks[name]) > 40
    assert all(of.hashes for of in locks[name].values())
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert " @ " not in text


@pytest.mark.parametrize(
    "text",
    [
        "click==8.5.1\n",
        "click==8.5.1 \\\n",
        "click>=8 \\\n    --hash=sha256:" + "0" * 64 + "\n",
        "click==8.5.1 \\\n    --hash=md5:" + "0" * 32 + "\n",
        "click @ file:///click.whl \\\n    --hash=sha256:" + "0" * 64 + "\n",
        "--index-url file:///simple\n",
        "click==8.5.1 \\\n    --hash=sha256:" + "0" * 64 + "\nflask==1.0\n",
    ],
)
def test_what_pins_no_file_is_seen(text: str) -> None:
    with pytest.raises(ValueError):
        read_lock(text)
    assert read_lock("click==8.5.1 ; sys_platform == 'linux' \\\n    --hash=sha256:" + "0" * 64 + "\n")


def test_nodes_have_the_same_files_as_everybody(locks: dict[str, dict[str, Locked]]) -> None:
    ours, nodes = locks[LOCK], locks[NODE_LOCK]
    assert {name: of for name, of in nodes.items() if ours.get(name) != of} == {}
    assert len(nodes) < len(ours) / 2


def test_nodes_have_nothing_that_they_have_no_use_for(locks: dict[str, dict[str, Locked]]) -> None:
    assert NOT_ON_NODES & set(locks[NODE_LOCK]) == set()
    assert set(locks[LOCK]) >= NOT_ON_NODES, "a name that nothing has forbids nothing"


def test_the_locks_are_those_of_pyproject(
    locks: dict[str, dict[str, Locked]], project: dict[str, dict[str, list[str]]]
) -> None:
    needed = project[""][""]
    for line in (*needed, *project["extras"]["dev"]):
        wanted = Requirement(line)
        assert wanted.specifier.contains(locks[LOCK][canonicalize_name(wanted.name)].version), line
    names = {canonicalize_name(Requirement(line).name) for line in needed}
    for line in project["groups"]["node"]:
        assert line in names, f"{line}: the range stands in the project's dependencies"
        assert line in locks[NODE_LOCK]


def test_the_distribution_has_a_name_that_is_ours_alone() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told["name"] == "proteus-spot"
    assert version("proteus-spot") == told["version"]
    assert "proteus" in told["scripts"]
