"""Compiled kernels: one process compiles, the next ones wait for it and find what it left."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from numba.core.caching import NullCache

from proteus_spot.psengine.apps import kernel_cache as kernels
from proteus_spot.psengine.apps.bgd.app import ElasticDescent
from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.apps.kmeans.app import KMeans
from proteus_spot.psengine.apps.lda.app import LatentDirichletAllocation
from proteus_spot.psengine.apps.mf.app import MatrixFactorization
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from tests.support.market_servers import wait_for
from tests.support.timeouts import PATIENCE

COMPILED = {
    "proteus_spot.psengine.apps.kmeans.kernels": ("move",),
    "proteus_spot.psengine.apps.lda.fold_in": ("fold_in",),
    "proteus_spot.psengine.apps.lda.kernels": ("sweep", "list_topics", "count_in"),
    "proteus_spot.psengine.apps.mf.kernels": ("adaptive_steps", "plain_steps"),
    "proteus_spot.psengine.apps.bgd.kernels": ("_times_column", "_add_transposed_times_column"),
    "proteus_spot.psengine.apps.csr_kernels": ("times_into", "add_transposed_times_into"),
}
#: Number of signatures of each kernel, where it is not 1: single and double precision.
SIGNATURES = {"proteus_spot.psengine.apps.csr_kernels": 2}
#: Prints how many signatures of each kernel came from the cache.
HITS = """
import json, sys
from proteus_spot.psengine.apps import kernel_cache as kernels
wanted = json.loads(sys.argv[1])
loaded = {name: kernels.load(name) for name in wanted}
print(json.dumps({name: [sum(getattr(loaded[name], one).stats.cache_hits.values()) for one in ones]
                  for name, ones in wanted.items()}))
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in a file of its own, which nobody has imported."""
    (tmp_path / "kernels_of_a_test.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kernels_of_a_test", raising=False)
    return "kernels_of_a_test"


@pytest.fixture
def held(name: str, tmp_path: Path) -> Iterator[BinaryIO]:
    """The module's file, locked as by a process that compiles it."""
    with (tmp_path / f"{name}.py").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def test_another_process_that_compiles_is_waited_for(name: str, held: BinaryIO) -> None:
    def waited_for() -> bool:
        waiting = [row for row in Path("/proc/locks").read_text().splitlines() if "-> FLOCK" in row]
        return any(f":{os.fstat(held.fileno()).st_ino} " in row for row in waiting)

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(kernels.load, name)
        wait_for(waited_for, "somebody who waits")
        assert name not in sys.modules
        fcntl.flock(held, fcntl.LOCK_UN)
        assert loading.result(PATIENCE).VALUE == 1
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it any more


def test_one_that_does_not_go_on_is_not_waited_for_for_ever(name: str, held: BinaryIO) -> None:
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(kernels.load, name, timeout_s=0.01)
        assert loading.result(PATIENCE).VALUE == 1  # while the lock is held
    fcntl.flock(held, fcntl.LOCK_UN)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it, who did not wait for it to the end


@pytest.mark.parametrize("damage", [b"", b"cno_such_package\nname\n."], ids=["empty", "of a package that was renamed"])
def test_a_damaged_cache_is_done_without(tmp_path: Path, damage: bytes) -> None:
    cache = tmp_path / "cache"
    one = "proteus_spot.psengine.apps.kmeans.kernels"
    command = [sys.executable, "-c", HITS, json.dumps({one: COMPILED[one]})]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(tmp_path)}

    def hits() -> tuple[str, str]:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment)
        return run.stdout, run.stderr

    assert hits() == (json.dumps({one: [0]}) + "\n", "")
    assert hits() == (json.dumps({one: [1]}) + "\n", "")
    (code,) = cache.rglob("*.nbc")
    code.write_bytes(damage)
    out, err = hits()
    assert out == json.dumps({one: [0]}) + "\n"
    assert f"{one} is compiled again, since numba's cache cannot be used" in err
    assert [path.name for path in tmp_path.iterdir()] == ["cache"], "the other one was thrown away"


def test_what_one_process_compiled_the_next_one_finds() -> None:
    for module in COMPILED:
        kernels.load(module)
    run = subprocess.run(
        [sys.executable, "-c", HITS, json.dumps(COMPILED)], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(run.stdout) == {
        module: [SIGNATURES.get(module, 1)] * len(names) for module, names in COMPILED.items()
    }


def test_applications_load_their_kernels_while_they_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they would be compiled under a clock."""
    loaded: set[str] = set()
    monkeypatch.setattr(kernels, "load", loaded.add)
    x = np.eye(4, dtype=np.float32)
    sparse = Csr(np.ones(4, np.float32), np.arange(4, dtype=np.int32), np.arange(5), 4).arrays()
    labelled = {**sparse, "y": np.array([0, 1, 0, 1])}
    MultinomialLogisticRegression(4, 2, 4).prepare(labelled)
    ElasticDescent(n_inputs=4, n_classes=2, n_examples=4, n_partitions=1).prepare(labelled)
    KMeans(4, 4, k=2).prepare({"x": x, "first": np.asarray(0)})
    words = {"words": np.zeros(3, np.int32), "offsets": np.array([0, 3]), "token_start": np.array([0])}
    LatentDirichletAllocation(2, 3, k=2).prepare(words)
    one, bounds = np.zeros(1, np.int32), np.array([0, 1])
    ratings = {"users": one, "items": one, "values": np.ones(1, np.float32), "partition": one}
    sizes = {"n_users": 1, "n_items": 1, "n_partitions": 1, "rating_mean": 3.0, "rating_sd": 1.5, "rank": 2}
    MatrixFactorization(**sizes).prepare({**ratings, "user_bounds": bounds, "item_bounds": bounds})
    assert loaded == set(COMPILED)


@pytest.mark.parametrize("name", COMPILED)
def test_what_may_be_summed_in_any_order_has_one_copy(name: str) -> None:
    """The process that compiles calls the copy of a part that was compiled alone, unless it is inlined."""
    module = kernels.load(name)
    options = {
        kernel: found.targetoptions
        for kernel, found in vars(module).items()
        if hasattr(found, "targetoptions") and isinstance(found._cache, NullCache)
    }
    several = [part for part, chosen in options.items() if chosen.get("fastmath") and not chosen.get("forceinline")]
    assert not several
    assert bool(options) is (name == "proteus_spot.psengine.apps.lda.kernels"), "parts are found"
