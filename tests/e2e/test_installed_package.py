"""The wheel beside a user's own packages of the names of our folders: each gets its own."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.cli_process import environment
from tests.support.wheels import source_copy

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

#: Packages and modules that people have in their projects, with what ours must not be taken for.
OWN = ("tasks", "studies", "flows", "infra", "psengine", "reports", "benchmarks", "bidding")
APPLICATION = """
import flows, infra, tasks
from kmeans import KMeans

class Mine(KMeans):
    def __init__(self, n_inputs, n_examples):
        super().__init__(n_inputs, n_examples, k=tasks.NUMBER, spread=infra.NUMBER * flows.NUMBER)
"""
TRIAL = """
import psengine, tasks

def train(trial):
    for step in trial.steps():
        trial.report(step, loss=1.0 / (step + psengine.NUMBER * tasks.NUMBER))
"""
SWEEP = {
    "trial": "my_trial:train",
    "code": "my_trial.py",
    "metric": {"name": "loss"},
    "stop": "none",
    "max_trial_steps": 4,
    "space": {"x": {"choice": [1, 2]}},
}
#: The names of loaded modules, which no file has two of.
LOADED = """
import importlib, pkgutil, sys
import proteus_spot
for name in {modules}:
    importlib.import_module("proteus_spot." + name)
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
real = [__import__("os").path.realpath(file) for file in files if file and "proteus_spot" in file]
assert len(real) == len(set(real)), sorted(file for file in real if real.count(file) > 1)
for name in {own}:
    assert importlib.import_module(name).NUMBER == 3, name
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages: Proteus by its wheel, made from its sdist, and the user's."""
    here = tmp_path_factory.mktemp("installed")
    source = source_copy(here / "source")
    program = "import sys; from setuptools import build_meta as b; print(b.build_sdist(sys.argv[1]))"
    run(source, sys.executable, "-c", program, str(here))
    (sdist,) = here.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(here / "sdist", filter="data")
    (unpacked,) = (here / "sdist").iterdir()
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(here))
    run(here, sys.executable, "-m", "pip", *build, str(unpacked))
    (wheel,) = here.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        archive.extractall(here / "site")
    assert {top for top in tops if not top.endswith(".dist-info")} == {"proteus_spot"}
    for name in OWN:
        (here / "site" / name).mkdir()
        (here / "site" / name / "__init__.py").write_text("NUMBER = 3\n")
    examples = Path(__file__).resolve().parents[2] / "docs" / "examples"
    (here / "site" / "kmeans.py").write_text((examples / "kmeans.py").read_text())
    (here / "site" / "mine.py").write_text(APPLICATION)
    return here / "site"


def run(cwd: Path, *command: str, **variables: str) -> str:
    """Run a command to its end; return what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(site: Path, cwd: Path, *arguments: str) -> str:
    """Run a verb of the installed program, in a folder, to its end."""
    variables = environment(cwd / "home") | {"PYTHONPATH": str(site)}
    return run(cwd, sys.executable, "-m", "proteus_spot", *arguments, **variables)


def test_an_index_takes_wheel_and_sdist_as_they_are(site: Path) -> None:
    files = [*site.parent.glob("*.whl"), *site.parent.glob("*.tar.gz")]
    assert len(files) == 2
    said = run(site.parent, sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    assert said.count("PASSED") == 2


@pytest.mark.parametrize(
    "modules", [("flows.cli.main", "flows.train"), ("infra.nodes.main",), ("infra.trials.process",)]
)
def test_no_module_is_loaded_under_two_names(site: Path, tmp_path: Path, modules: tuple[str, ...]) -> None:
    run(tmp_path, sys.executable, "-P", "-c", LOADED.format(modules=modules, own=OWN), PYTHONPATH=str(site))


def test_an_application_gets_the_packages_of_its_user(site: Path, tmp_path: Path) -> None:
    command(site, tmp_path, "train", "mine:Mine", "--data", "digits", "--clocks", "3", "--json", "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["clocks"] == 3


def test_a_trial_gets_the_packages_of_its_user(site: Path, tmp_path: Path) -> None:
    (tmp_path / "my_trial.py").write_text(TRIAL)
    (tmp_path / "sweep.yaml").write_text(json.dumps(SWEEP))
    command(site, tmp_path, "sweep", "local", "sweep.yaml", "--json", "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["best"]


@pytest.mark.storm
def test_a_job_on_the_market_gets_the_packages_of_its_user(site: Path, tmp_path: Path) -> None:
    command(site, tmp_path, "run", "mine:Mine", "--data", "digits", "--clocks", "40", "--json", "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["job"]["state"] == "finished"
