"""A user's svmlight file through real node processes: prepared, trained, evaluated; sparse as dense."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import part_name
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.single_process import initial, train_alone
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROWS, COLUMNS = 400, 300
PARTITIONS, CLOCKS = 4, 60


def svmlight(path: Path) -> str:
    """Write two classes, -1 and +1, told apart by whose half of the columns they use more."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for row in range(ROWS):
            label = row % 2
            own, other = rng.choice(COLUMNS // 2, 8, replace=False), rng.choice(COLUMNS // 2, 3, replace=False)
            columns = np.sort(np.concatenate([own + label * COLUMNS // 2, other + (1 - label) * COLUMNS // 2])) + 1
            file.write(f"{2 * label - 1} " + " ".join(f"{column}:1" for column in columns) + "\n")
    return str(path)


def csv(path: Path, of: str) -> str:
    """Write the same rows with their zeros."""
    with open(of) as source, path.open("w") as file:
        for line in source:
            label, *entries = line.split()
            x = np.zeros(COLUMNS)
            x[[int(entry.partition(":")[0]) - 1 for entry in entries]] = 1
            file.write(",".join(f"{value:g}" for value in x) + f",{label}\n")
    return str(path)


def test_nodes_train_on_a_users_svmlight_file_as_on_its_csv(tmp_path: Path) -> None:
    """Nodes train on the svmlight file, a bare loop on the same rows as CSV: sparse rows, and whole ones."""
    source = svmlight(tmp_path / "mine.svm")
    with LocalCluster(tmp_path / "cluster") as cluster:
        data = prepare(cluster.blobs, cluster.job_id, source, PARTITIONS, 0, "mlr")
        assert (data.rows, data.heldout_rows) == (320, 80)
        sizes = {"n_inputs": COLUMNS, "n_classes": 2, "n_examples": 320}
        assert data.sizes == {**sizes, "n_partitions": PARTITIONS}
        params = {**sizes, "step": 0.5}
        config = JobConfig(
            cluster.job_id, "mlr", params, data.data_url, n_partitions=PARTITIONS, n_shards=2, clocks=CLOCKS
        )
        cluster.start_nodes(reliable=1, transient=1)
        cluster.client.start(config.to_dict())
        result = cluster.wait_state("finished")["result"]
        assert result["accuracy"] > 0.9
        assert result["lost_micro_tasks"] == 0
        model = cluster.model()["weights"]
        assert set(cluster.shutdown().values()) == {0}

        dense = prepare(cluster.blobs, "dense", csv(tmp_path / "mine.csv", source), PARTITIONS, 0, "mlr")
    app = MultinomialLogisticRegression(**params)
    files = Blobs(dense.data_url)
    arrays = [files.read_npz(part_name(p)) for p in range(PARTITIONS)]
    assert "x" in arrays[0]
    assert "x" not in Blobs(data.data_url).read_npz(part_name(0))
    parts = [app.prepare(part) for part in arrays]
    losses: list[float] = []
    alone = train_alone(app, parts, initial(app, config.seed), CLOCKS, lambda _, __, loss: losses.append(loss))
    assert np.allclose(model, alone["weights"], rtol=1e-3, atol=1e-5)
    assert [loss for _, loss in result["losses"]] == pytest.approx([loss / 320 for loss in losses], rel=1e-4)
    assert losses[-1] < losses[0] / 2
