"""Kernels of two processors give a model two sets of bits, and one set where they are pinned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes import main
from proteus_spot.infra.nodes.cpu_kernels import kernel_environment

#: Trains for some clocks as a node would, and prints the digest of the model and what the libraries have chosen.
TRAIN = """
import hashlib, json
from proteus_spot.infra.nodes.main import set_up
set_up()
import numpy as np, threadpoolctl
from numpy._core._multiarray_umath import __cpu_dispatch__ as dispatch, __cpu_features__ as features
from numba.core.registry import cpu_target
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.single_process import initial, train_alone
rng = np.random.default_rng(0)
app = MultinomialLogisticRegression(40, 10, 400, features=300, gamma=0.05, step=5.0)
parts = [{"x": rng.random((200, 40), np.float32), "y": rng.integers(0, 10, 200, np.int32)} for _ in range(2)]
model = train_alone(app, [app.prepare(part) for part in parts], initial(app, 0), 5)
digest = hashlib.sha256(b"".join(table.tobytes() for table in model.values())).hexdigest()
blas = [pool["architecture"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
wide = [name for name in dispatch if features[name] and name != "X86_V3"]
print(json.dumps([digest, blas[0], wide, cpu_target.target_context.codegen().magic_tuple()[1]]))
"""
AVX2 = "avx2" in Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else False


def train(processor: str, kernels: str) -> list[Any]:
    """Train where BLAS takes the machine for one with another processor."""
    environment = os.environ | {"OPENBLAS_CORETYPE": processor, "PROTEUS_CPU_KERNELS": kernels}
    done = subprocess.run([sys.executable, "-c", TRAIN], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not AVX2, reason="this processor has no AVX2")
def test_a_model_has_the_same_bits_on_two_processors_where_kernels_are_pinned() -> None:
    one, other = train("Haswell", "native"), train("Nehalem", "native")
    assert (one[1], other[1]) == ("Haswell", "Nehalem")
    assert one[0] != other[0], "with the kernels of each processor they differ"
    pinned, pinned_too = train("Haswell", "avx2"), train("Nehalem", "avx2")
    assert pinned == pinned_too
    assert pinned[1:] == ["Haswell", [], "haswell"]


def test_a_machine_that_cannot_run_the_kernels_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd evtstrm aes\n")
    for missing in ("cpuinfo", "none"):
        with pytest.raises(InputError, match="PROTEUS_CPU_KERNELS: avx2 needs an x86-64 processor with AVX2"):
            kernel_environment("avx2", tmp_path / missing)
        assert kernel_environment("native", tmp_path / missing) == {}

    def set_up() -> None:
        kernel_environment("avx2", tmp_path / "cpuinfo")

    monkeypatch.setattr(main, "set_up", set_up)
    options = ["--job", "j", "--blob", tmp_path.as_uri(), "--name", "i", "--tier", "reliable"]
    assert main.main(options) == 2
    assert capsys.readouterr().err.count("\n") == 1
