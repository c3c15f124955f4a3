"""Compiled functions: what may call them, and what has them compiled again."""

import pickle
import runpy
from pathlib import Path

import numba
import numpy as np
import pytest

from proteus_spot.bidding import jit
from proteus_spot.bidding.economics.equations import useful_time_s
from proteus_spot.bidding.jit import compiled, entry, inline_jit, jitable, source_digest


@jitable
def share(paid: float, whole: float) -> float:
    return paid / whole


@inline_jit
def doubled(paid: float, whole: float) -> float:
    return 2.0 * share(paid, whole)


def test_a_formula_is_the_same_for_figures_arrays_and_compiled_callers() -> None:
    in_a_loop = compiled(lambda beta, median_s: useful_time_s(beta, median_s, 3600), cache=False)
    betas, medians_s = np.linspace(0, 1, 7), np.linspace(0, 3600, 7)
    by_arrays = useful_time_s(betas, medians_s, 3600).tolist()
    assert by_arrays == [useful_time_s(*each, 3600) for each in zip(betas, medians_s, strict=True)]
    assert by_arrays == [in_a_loop(*each) for each in zip(betas, medians_s, strict=True)]
    assert not hasattr(useful_time_s, "py_func"), "Python runs it as it is, and compiles nothing"


def test_compiled_functions_divide_as_numpy_does() -> None:
    made = entry(lambda source_digest: lambda paid, whole: (doubled(paid, whole), source_digest))
    assert made(1.0, 4.0) == (0.5, source_digest())
    assert made(1.0, 0.0)[0] == np.inf


def test_the_version_covers_what_compiled_functions_call_and_no_wording() -> None:
    covered = [path for source in jit._COMPILED for path in (source.rglob("*.py") if source.is_dir() else [source])]
    names = {path.relative_to(Path(jit.__file__).parent).as_posix() for path in covered}
    assert names >= {"jit.py", "policies/rules.py", "economics/equations.py", "economics/hour_value.py"}
    assert names >= {
        "backtest/simulate.py",
        "backtest/schemes/best.py",
        "billing/expected.py",
        "forecast/forecast_model.py",
    }
    assert "policies/best.py" not in names


def test_a_change_in_one_file_makes_another_version(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text("1")
    first = source_digest(rules)
    rules.write_text("2")
    second = source_digest(rules)
    renamed = source_digest(rules.rename(tmp_path / "other.py"))
    assert len({first, second, renamed}) == 3


def test_a_cache_that_names_a_renamed_module_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "formula.py"
    file.write_text("from proteus_spot.bidding.jit import compiled\n@compiled\ndef twice(x):\n    return 2 * x\n")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    assert runpy.run_path(str(file))["twice"](2) == 4
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(pickle.dumps(numba.__version__) + b"cno_such_module\nName\n.")
    assert runpy.run_path(str(file))["twice"](2) == 4
    assert b"no_such_module" not in index.read_bytes(), "it is written again"
