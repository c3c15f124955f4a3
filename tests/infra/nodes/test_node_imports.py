"""What a machine runs needs only the packages of its lock, and JAX is not among what it loads."""

import importlib.metadata as installed
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node_imports import reached

ROOT = Path(__file__).parents[3]
#: Refuses the modules of all other packages, then imports, as they are when they work, those of the arguments.
IMPORT = """
import sys
denied, modules = (words.split(",") for words in sys.argv[1:3])
class Deny:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in denied:
            raise ModuleNotFoundError(f"{name} is not on a node", name=name)
sys.meta_path.insert(0, Deny())
for module in modules:
    __import__(module)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
MACHINES = {
    "node": (
        "proteus_spot.infra.nodes.main",
        "proteus_spot.infra.nodes.controller_client",
        "proteus_spot.psengine.shell.controller_shell",
        "s3fs",
    ),
    "guard": ("proteus_spot.infra.nodes.lease_guard",),
    "trial": (
        *(
            "proteus_spot.infra.nodes.trial_main",
            "proteus_spot.infra.trials.process",
            "proteus_spot.infra.trials.engine_application",
            "proteus_spot.psengine.apps.mlr",
        ),
        *(
            "proteus_spot.infra.trials.adapters.estimators",
            "proteus_spot.infra.trials.adapters.boosting",
            "s3fs",
            "skops.io",
        ),
    ),
}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _denied(machine: str) -> set[str]:
    """Return the modules of packages that are installed here and not on a machine."""
    name = "requirements-trial.lock" if machine == "trial" else "requirements-node.lock"
    lock = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / name).read_text(), re.MULTILINE))
    return {
        module
        for module, owners in installed.packages_distributions().items()
        if not {_normal(owner) for owner in owners} & {*lock, "proteus-spot"} and module != "tests"
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_imports_only_what_its_lock_has(machine: str) -> None:
    denied = _denied(machine)
    assert {"prefect", "boto3", "jax", "optuna", "pyarrow"} <= denied
    words = [",".join(sorted(denied)), ",".join(MACHINES[machine])]
    found = subprocess.run(
        [sys.executable, "-c", IMPORT, *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "numpy" in found.stdout.split()


def test_whatever_a_node_can_come_to_import_is_in_its_lock() -> None:
    ours, others = reached()
    assert {"proteus_spot.infra.ec2.notice_poller", "proteus_spot.psengine.apps.lda.kernels"} <= set(ours)
    assert {"distributed", "httpx", "numba"} <= set(others)
    assert _denied("node").isdisjoint(others)
