"""The core alone, installed from the lock: its verbs work, and the others name the extra that they lack."""

import json
import os
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.cli_process import environment
from tests.support.environments import python_of
from tests.test_locks import LOCK, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TRIAL = "def train(trial):\n    for step in trial.steps():\n        trial.report(step, loss=1.0 / step)\n"
SWEEP = {
    "trial": "my_trial:train",
    "code": "my_trial.py",
    "metric": {"name": "loss"},
    "max_trial_steps": 4,
    "space": {"x": {"choice": [1, 2]}},
}
NET = "from proteus_spot.nets import TorchNet\nclass Mine(TorchNet):\n    workers = 2\n"
#: Verbs that need an extra, and the extra.
LACKING = {
    "run": (("run",), "local"),
    "up": (("up",), "local"),
    "the dashboard": (("train", "mlr", "--dashboard"), "local"),
    "sweep run": (("sweep", "run", "sweep.yaml"), "sweeps"),
    "sweep local": (("sweep", "local", "sweep.yaml"), "sweeps"),
    "sweep submit": (("sweep", "submit", "sweep.yaml"), "sweeps"),
    "sweep report": (("sweep", "report", "digits"), "sweeps"),
    "revpred": (("evictions", "fit", "--predictor", "revpred", "--prices", "prices.csv"), "neural"),
    "tributary": (("evictions", "fit", "--predictor", "tributary", "--prices", "prices.csv"), "neural"),
    "postgres": (("jobs", "--database", "postgresql+psycopg://127.0.0.1:1/none"), "postgres"),
    "a net": (("train", "net:Mine", "--data", "digits"), "torch"),
    "check of a net": (("check", "net:Mine", "--data", "digits"), "torch"),
    "bench": (("bench", "endpoint"), "local"),
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the core alone."""
    here = tmp_path_factory.mktemp("core")
    core = runpy.run_path(str(ROOT / "tools" / "packages.py"))["closure"](
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    )
    entries = re.findall(r"^(\S+?)==(?:.*\\\n)+.*\n", (ROOT / LOCK).read_text(), re.MULTILINE)
    blocks = re.findall(r"^\S+==(?:.*\\\n)+.*\n", (ROOT / LOCK).read_text(), re.MULTILINE)
    lock = here / "core.lock"
    lock.write_text("".join(block for name, block in zip(entries, blocks, strict=True) if name in core))
    return python_of(lock, here)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory with a sweep and a net."""
    (tmp_path / "my_trial.py").write_text(TRIAL)
    (tmp_path / "sweep.yaml").write_text(json.dumps(SWEEP))
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def proteus(python: Path, here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a verb of that environment in a folder, to its end."""
    variables = environment(here.parent / f"{here.name}-home")
    variables.pop("PYTHONPATH", None)
    return subprocess.run(
        [python.with_name("proteus"), *arguments],
        cwd=here,
        env=variables | {"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("verb", LACKING)
def test_a_verb_says_which_extra_it_lacks_and_begins_nothing(python: Path, here: Path, verb: str) -> None:
    arguments, extra = LACKING[verb]
    before = sorted(path.name for path in here.iterdir())
    ended = proteus(python, here, *arguments)
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("proteus: ")
    assert line.endswith(f"which is not installed: pip install 'proteus-spot[{extra}]'")
    assert sorted(path.name for path in here.iterdir()) == before


def test_the_core_trains_checks_and_predicts(python: Path, here: Path) -> None:
    checked = proteus(python, here, "check", "mlr", "--data", "digits")
    assert checked.returncode == 0, checked.stderr
    trained = proteus(python, here, "train", "mlr", "--clocks", "5", "--dir", "mine", "--json", "out.json",
                      "--report", "page.html")  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    figures = json.loads((here / "out.json").read_text())
    assert figures["clocks"] == 5
    assert "svg" in (here / "page.html").read_text()
    svm = "".join(f"{row % 2} {1 + row % 2}:1 {3 + row % 3}:0.5\n" for row in range(60))
    (here / "mine.svm").write_text(svm)
    trained = proteus(python, here, "train", "mlr", "--data", "mine.svm", "--clocks", "5", "--json", "svm.json")
    assert trained.returncode == 0, trained.stderr


@pytest.mark.parametrize(
    "arguments", [("--help",), ("submit", "--help"), ("sweep", "--help"), ("jobs",), ("cost",), ("run", "--help")]
)
def test_verbs_that_need_no_extra_work(python: Path, here: Path, arguments: tuple[str, ...]) -> None:
    ended = proteus(python, here, *arguments)
    assert ended.returncode == 0, ended.stderr


def test_the_flows_and_a_node_import_there(python: Path, here: Path) -> None:
    modules = [
        "proteus_spot.infra.nodes.main",
        *(f"proteus_spot.flows.{path.stem}" for path in (ROOT / "flows").glob("*.py") if path.stem != "__init__"),
    ]
    program = f"import importlib\nfor name in {modules}: importlib.import_module(name)"
    done = subprocess.run([python, "-c", program], cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
