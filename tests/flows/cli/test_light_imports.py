"""Verbs that show a table import what they show it from, and none of what takes seconds to import."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.node_logs import Incarnation, log_name
from tests.support.job_states import JOB, START_S, record_job
from tests.support.sweep_states import SWEEP, RecordedSweep
from tests.support.sweeps import plan_of
from tests.support.timeouts import PATIENCE

LOCAL = "local-1"
HEAVY = {
    *(
        "boto3",
        "botocore",
        "dask",
        "distributed",
        "jax",
        "lightgbm",
        "llvmlite",
        "matplotlib",
        "moto",
        "numba",
        "optuna",
    ),
    *("optuna", "pandas", "prefect", "pyarrow", "s3fs", "scipy", "sklearn", "torch"),
}
#: The command, which names what it has imported when it ends.
TOLD = """
import atexit, json, sys
atexit.register(lambda: print("imported", json.dumps(sorted({name.partition(".")[0] for name in sys.modules}))))
from proteus_spot.flows.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a job and a sweep in the shared database, and a local run that was interrupted."""
    here = tmp_path_factory.mktemp("here")
    with Store.open(f"sqlite:///{here}/state.db") as store:
        record_job(store, hours=1)
        RecordedSweep(plan_of(), store=store)
    directory = here / "runs" / LOCAL
    directory.mkdir(parents=True)
    ScaledClock.create(clock_file(directory), START_S + 500.0, 1e-6)
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.create_job(LOCAL, {}, START_S)
    Blobs((directory / "blobs").as_uri()).write_bytes(
        log_name(LOCAL, "i-1", Incarnation("20260601T120000.250", "node", 7)), b"joined\n"
    )
    return here


def run(here: Path, *arguments: str) -> tuple[str, set[str]]:
    """Return what the command prints, and the packages that it imports."""
    environment = {
        "HOME": str(here),
        "PROTEUS_DATABASE_URL": f"sqlite:///{here}/state.db",
        "PROTEUS_BLOBS_URL": str(here),
    }
    done: Any = subprocess.run(
        [sys.executable, "-c", TOLD, *arguments],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed, _, imported = done.stdout.rpartition("imported ")
    return printed, set(json.loads(imported))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("jobs",), SWEEP),
        (("cost",), JOB),
        (("logs", LOCAL), "joined"),
        (("stop", LOCAL), "nothing of it runs or costs"),
        (("report", JOB, "--out", "report.html"), "report.html"),
        (("sweep", "show", SWEEP), "trial"),
    ],
)
def test_a_verb_that_shows_a_table_imports_nothing_heavy(here: Path, arguments: tuple[str, ...], shown: str) -> None:
    printed, imported = run(here, *arguments)
    assert shown in printed
    assert imported & HEAVY == set()
