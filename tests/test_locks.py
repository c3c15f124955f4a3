"""The locks pin every file that is installed, agree with each other and with what pyproject.toml wants."""

import re
import runpy
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proteus_spot.infra.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
LOCK, NODE_LOCK, TRIAL_LOCK = "requirements.lock", "requirements-node.lock", "requirements-trial.lock"
LOCKS = (LOCK, NODE_LOCK, TRIAL_LOCK)
#: Each lock of a machine, and the group of pyproject.toml that it is made for.
GROUPS = {NODE_LOCK: "node", TRIAL_LOCK: "trial"}
#: Maximum number of packages that the core installs.
MOST_OF_CORE = 147
#: What is in no core: each extra is there to keep it out.
NOT_IN_CORE = {
    "moto",
    "bokeh",
    "optuna",
    "scipy",
    "scikit-learn",
    "skops",
    "lightgbm",
    "jax",
    "optax",
    "psycopg",
}
#: What no machine needs: servers, flows, the state database, pictures, readers of users' files, what decides.
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
    return {name: read_lock((ROOT / name).read_text()) for name in LOCKS}


@pytest.fixture(scope="module")
def project() -> dict[str, dict[str, Any]]:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {
        "": {"": told["project"]["dependencies"]},
        "extras": told["project"]["optional-dependencies"],
        "groups": told["dependency-groups"],
    }


@pytest.mark.parametrize("name", LOCKS)
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


@pytest.mark.parametrize("lock", GROUPS)
def test_machines_have_the_same_files_as_everybody(lock: str, locks: dict[str, dict[str, Locked]]) -> None:
    ours, nodes = locks[LOCK], locks[lock]
    assert {name: of for name, of in nodes.items() if ours.get(name) != of} == {}
    assert len(nodes) < len(ours) / 2


def test_nodes_have_nothing_that_they_have_no_use_for(locks: dict[str, dict[str, Locked]]) -> None:
    assert NOT_ON_NODES & set(locks[TRIAL_LOCK]) == set()
    assert set(locks[LOCK]) >= NOT_ON_NODES, "a name that nothing has forbids nothing"
    assert set(locks[TRIAL_LOCK]) >= set(locks[NODE_LOCK])
    assert {"scikit-learn", "scipy", "skops"} <= set(locks[TRIAL_LOCK]) - set(locks[NODE_LOCK])


def test_the_locks_are_those_of_pyproject(
    locks: dict[str, dict[str, Locked]], project: dict[str, dict[str, Any]]
) -> None:
    extras = project["extras"]
    wanted = [Requirement(line) for line in (*project[""][""], *extras["dev"])]
    (ours,) = (each for each in wanted if each.name == "proteus-spot")
    assert ours.extras == {"local", "sweeps", "neural", "postgres", "docs"}, "what make run and make test need"
    wanted.remove(ours)
    wanted += [Requirement(line) for extra in ours.extras for line in extras[extra]]
    for each in wanted:
        assert each.specifier.contains(locks[LOCK][canonicalize_name(each.name)].version), each
    names = {canonicalize_name(each.name) for each in wanted}
    for lock, group in GROUPS.items():
        for line in project["groups"][group]:
            if isinstance(line, str):
                assert line in names, f"{line}: the range stands in the project's dependencies"
                assert line in locks[lock]


def test_the_core_brings_few_packages(locks: dict[str, dict[str, Locked]], project: dict[str, dict[str, Any]]) -> None:
    closure = runpy.run_path(str(ROOT / "tools" / "packages.py"))["closure"]
    core = closure(project[""][""])
    assert len(core) <= MOST_OF_CORE
    assert core <= set(locks[LOCK])
    assert core.isdisjoint(NOT_IN_CORE)
    assert set(locks[LOCK]) >= NOT_IN_CORE, "a name that nothing has forbids nothing"


def test_all_is_every_extra(project: dict[str, dict[str, Any]]) -> None:
    (all_of_them,) = map(Requirement, project["extras"]["all"])
    assert all_of_them.extras == set(project["extras"]) - {"all", "dev", "docs"} == set(EXTRAS)


def test_the_distribution_has_a_name_that_is_ours_alone() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told["name"] == "proteus-spot"
    assert version("proteus-spot") == told["version"]
    assert "proteus" in told["scripts"]
