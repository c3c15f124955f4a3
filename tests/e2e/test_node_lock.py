"""requirements-node.lock is all that a node needs: a job is trained by processes that have nothing else installed."""

import json
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.storage.checkpoints import find_checkpoints
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.config import JobConfig
from tests.support.buckets import served_bucket
from tests.support.environments import python_of, run
from tests.support.local_cluster import LocalCluster
from tests.support.node_imports import reached
from tests.test_locks import NODE_LOCK, ROOT, read_lock

pytestmark = [pytest.mark.storm, pytest.mark.e2e]  # tests/infra/nodes/test_node_imports.py compares with the lock

CLOCKS, COLUMNS, PARTITIONS = 30, 300, 4


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment of the lock with Proteus as a wheel, as in a node's image."""
    return python_of(ROOT / NODE_LOCK, tmp_path_factory.mktemp("node"))


def _asked(python: Path, program: str) -> object:
    """Return the JSON that `program` prints in that environment, away from these sources."""
    done = run(python, "-c", program, cwd=python.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_holds_the_lock_and_proteus_and_nothing_else(python: Path) -> None:
    program = (
        "import importlib.metadata as m, json; print(json.dumps(sorted(d.name.lower() for d in m.distributions())))"
    )
    there = _asked(python, program)
    assert isinstance(there, list)
    locked = {*read_lock((ROOT / NODE_LOCK).read_text()), "proteus-spot"}
    assert {name.replace("_", "-").replace(".", "-") for name in there} <= locked
    assert {"proteus-spot", "numba", "distributed", "s3fs"} <= set(there)


def test_all_that_a_node_can_come_to_import_is_there(python: Path) -> None:
    ours, others = reached()
    assert {"proteus_spot.infra.ec2.notice_poller", "proteus_spot.psengine.apps.lda.kernels"} <= set(ours)
    assert {"distributed", "httpx", "numba"} <= set(others)
    plain = [module for module in ours if not module.endswith("kernels")]  # compiling those would take half a minute
    loaded = _asked(
        python,
        "import importlib, json; "
        f"print(json.dumps([importlib.import_module(name).__file__ for name in {plain + others}]))",
    )
    assert isinstance(loaded, list)
    elsewhere = [file for file in loaded if not file.startswith(str(python.parents[1]))]
    assert elsewhere == [], "modules that the environment does not hold"


def test_it_reads_and_writes_a_bucket(python: Path) -> None:
    with served_bucket() as url:
        program = (
            "import json; from proteus_spot.infra.storage.blobs import open_blobs; "
            "from proteus_spot.infra.settings import Settings; "
            f"blobs = open_blobs(Settings(blob_url='{url}/jobs')); "
            "blobs.write_json('a.json', [1, 2]); print(json.dumps([blobs.list(), blobs.read_json('a.json')]))"
        )
        assert _asked(python, program) == [["a.json"], [1, 2]]


def _examples(path: Path) -> str:
    """Write two classes as svmlight, each with more values in its half of the columns."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for row in range(400):
            label = row % 2
            own, other = rng.choice(COLUMNS // 2, 8, replace=False), rng.choice(COLUMNS // 2, 3, replace=False)
            columns = np.sort(np.concatenate([own + label * COLUMNS // 2, other + (1 - label) * COLUMNS // 2])) + 1
            file.write(f"{2 * label - 1} " + " ".join(f"{column}:1" for column in columns) + "\n")
    return str(path)


def test_a_job_is_trained_there_and_its_state_is_kept(python: Path, tmp_path: Path) -> None:
    source = _examples(tmp_path / "mine.svm")
    with LocalCluster(tmp_path / "cluster", python=python) as cluster:
        data = prepare(cluster.blobs, cluster.job_id, source, PARTITIONS, 0, "mlr")
        config = JobConfig(
            cluster.job_id, "mlr", {**data.sizes, "step": 0.5}, data.data_url, n_partitions=PARTITIONS, clocks=CLOCKS
        )
        cluster.start_nodes(reliable=1, transient=1)
        cluster.client.hold(CLOCKS // 2)
        cluster.client.start(config.to_dict())
        cluster.wait(lambda status: status["clock"] >= CLOCKS // 2, "half of the clocks")
        assert cluster.client.checkpoint() == {"clock": CLOCKS // 2, "error": ""}
        kept = find_checkpoints(cluster.blobs, config).newest
        assert kept is not None
        assert kept.clock == CLOCKS // 2
        cluster.client.hold(None)
        result = cluster.wait_state("finished")["result"]
        assert result["accuracy"] > 0.9
        losses = [loss for _, loss in result["losses"]]
        assert len(losses) == CLOCKS
        assert losses[-1] < losses[0] / 2
        assert cluster.model()["weights"].any()
        assert cluster.blobs.exists(f"{JobPaths(cluster.job_id).model}/manifest.json")
        assert set(cluster.shutdown().values()) == {0}
