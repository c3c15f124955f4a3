"""A user's application on real nodes: its code is shipped as a file or a wheel, and no node works with other code."""

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from proteus_spot.infra.applications.code_files import read_code
from proteus_spot.infra.applications.code_shipping import ship_code
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.single_process import initial, train_alone
from tests.support.local_cluster import LocalCluster, write_data
from tests.support.wheels import write_wheel

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "kmeans.py"
CLUSTERS, PARTITIONS, CLOCKS = 4, 6, 12


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Four clouds in the unit square, in random order."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, CLUSTERS, 600)
    centres = np.array([[0.2, 0.2], [0.8, 0.2], [0.2, 0.8], [0.8, 0.8]])
    return centres[y] + rng.normal(0, 0.05, (600, 2)), y


def job(cluster: LocalCluster, app: str, code_sha256: str, **config: object) -> JobConfig:
    x, y = examples()
    url = write_data(cluster, PARTITIONS, x, y)
    params = {"n_inputs": 2, "n_classes": CLUSTERS, "n_examples": 480, "k": CLUSTERS}  # it does not take n_classes
    fields = {"clocks": CLOCKS, "n_partitions": PARTITIONS, "n_shards": 2, "code_sha256": code_sha256} | config
    return JobConfig("job", app, params, url, **fields)  # type: ignore[arg-type]


def lloyd(first: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the centres after the clocks, by the textbook."""
    centres = first
    for _ in range(CLOCKS):
        nearest = ((x[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.array(
            [x[nearest == k].mean(axis=0) if (nearest == k).any() else 0 * x[0] for k in range(CLUSTERS)]
        )
    return centres


def first_centres() -> np.ndarray:
    """Return what the nodes begin with: a generator a shard, seeded alike wherever it runs."""
    halves = [np.random.default_rng([0, 0, shard]).uniform(0, 1.0, (CLUSTERS // 2, 3)) for shard in range(2)]
    return np.vstack(halves)[:, :2]


def test_the_example_is_short_and_cannot_be_imported_by_itself() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60
    done = subprocess.run([sys.executable, "-c", "import kmeans"], capture_output=True, text=True, check=False)
    assert "No module named 'kmeans'" in done.stderr


def test_what_the_pages_show_is_what_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "applications.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown in EXAMPLE.read_text()
    (svm,) = re.findall(r"```python\n(# my_svm\.py.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "my_svm.py").write_text(svm)
    assert read_code("my_svm:LinearSvm", str(tmp_path / "my_svm.py")).name == "my_svm.py"
    made = runpy.run_path(str(tmp_path / "my_svm.py"))
    x, y = load_digits(return_X_y=True)
    x, rows = (x / 16.0).astype(np.float32), np.random.default_rng(0).permutation(len(y))
    held, *parts = ({"x": x[some], "y": y[some]} for some in np.array_split(rows, 5))
    app = made["LinearSvm"](64, 10, sum(len(part["y"]) for part in parts))
    tables = train_alone(app, [app.prepare(part) for part in parts], initial(app, 0), 100)
    assert app.evaluate(tables, held)["accuracy"] > 0.9


def as_file(directory: Path) -> tuple[str, Path]:
    return "kmeans:KMeans", EXAMPLE


def as_wheel(directory: Path) -> tuple[str, Path]:
    """A package whose application reads a file of the package."""
    main = (
        "from importlib.resources import files\nfrom clusters._kmeans import KMeans as Base\n\n\nclass KMeans(Base):\n"
    )
    main += "    def __init__(self, **params):\n"
    main += "        spread = float(files('clusters').joinpath('spread.txt').read_text())\n"
    main += "        params.pop('n_classes')\n"  # it takes all
    main += "        super().__init__(**params, spread=spread)\n"
    content = {
        "clusters/__init__.py": "",
        "clusters/app.py": main,
        "clusters/_kmeans.py": EXAMPLE.read_text(),
        "clusters/spread.txt": "1.0\n",
    }
    return "clusters.app:KMeans", write_wheel(directory, content, "clusters")


@pytest.mark.e2e
@pytest.mark.parametrize("travels", [as_file, as_wheel])
def test_an_application_travels_to_nodes_that_do_not_have_it(
    tmp_path: Path, travels: Callable[[Path], tuple[str, Path]]
) -> None:
    app, code = travels(tmp_path)
    with LocalCluster(tmp_path) as cluster:
        if travels is as_file:
            with pytest.raises(InputError, match="cannot be imported on this node: No module named 'kmeans'"):
                cluster.client.start(job(cluster, app, "").to_dict())
        digest = ship_code(cluster.blobs, "job", app, str(code))
        cluster.start_nodes(reliable=1, transient=1)
        cluster.client.start(job(cluster, app, digest).to_dict())
        result = cluster.wait_state("finished")["result"]
        clusters = cluster.model()["clusters"]
        model = cluster.blobs.manifest(JobPaths("job").model)
        assert set(cluster.shutdown().values()) == {0}
    x, _ = examples()
    trained = np.concatenate([x[:480][p::PARTITIONS] for p in range(PARTITIONS)]).astype(np.float32).astype(np.float64)
    assert clusters[:, 2].sum() == pytest.approx(480)
    np.testing.assert_allclose(clusters[:, :2] / np.maximum(clusters[:, 2:], 1), lloyd(first_centres(), trained), 1e-9)
    assert result["inertia"] == pytest.approx(result["losses"][-1][1], rel=0.5)
    assert result["lost_micro_tasks"] == 0
    assert model is not None
    about = model.about["model"]
    assert (about["app"], about["code_sha256"], about["app_params"]["k"]) == (app, digest, CLUSTERS)
    assert "model" not in result
    assert not list((tmp_path / "tmp").glob("proteus-*"))  # what was unpacked went with the processes


@pytest.mark.e2e
def test_nodes_with_other_code_or_damaged_code_do_not_work_and_the_job_goes_on(tmp_path: Path) -> None:
    app, code = as_file(tmp_path)
    other = tmp_path / "kmeans.py"
    other.write_text(EXAMPLE.read_text() + "# edited\n")
    place = tmp_path / "blobs" / JobPaths("job").code
    with LocalCluster(tmp_path) as cluster:

        def swap(path: Path) -> str:
            (place / "manifest.json").unlink(missing_ok=True)
            return ship_code(cluster.blobs, "job", app, str(path))

        others = swap(other)
        cluster.start_node("t1")
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node that has other code")
        digest = swap(code)
        cluster.start_node("r1", "reliable")
        cluster.wait(lambda s: len(s["nodes"]) == 2, "the node that has the job's code")
        cluster.client.start(job(cluster, app, digest, clocks=None, max_seconds=60.0).to_dict())
        cluster.wait(lambda s: s["clock"] >= 1, "some clocks")
        swap(other)
        cluster.start_node("t2")
        cluster.wait(lambda s: len(s["nodes"]) == 3, "a node that joins later, with other code")
        swap(code)
        data = bytearray((place / "kmeans.py").read_bytes())
        data[-2] ^= 1
        (place / "kmeans.py").write_bytes(data)
        cluster.start_node("t3")
        assert cluster.processes.pop("t3").wait(30) == 1
        assert "kmeans.py: its content differs from the manifest's digest" in (tmp_path / "t3.log").read_text()
        status = cluster.client.status()
        reason = f"it has {others[:12]}, and the job wants {digest[:12]}: its code is another"
        assert [(n["name"], n["state"], n["error"]) for n in status["nodes"]] == [
            ("t1", "unfit", reason),
            ("r1", "ready", ""),
            ("t2", "unfit", reason),
        ]
        assert status["state"] == "running"
        cluster.client.stop("seen enough")
        done = cluster.wait_state("stopped")
        assert set(done["micro_tasks_done"]) == {"reliable", "transient"}
        assert done["micro_tasks_done"]["transient"] == 0
