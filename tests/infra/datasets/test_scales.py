"""Means and standard deviations of the inputs: those of the training set, whatever the parts and the form."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets import examples
from proteus_spot.infra.datasets.examples import column_moments, read
from proteus_spot.infra.datasets.prepare import check_data, prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.psengine.apps.csr import Csr

ROWS = 90


def table() -> np.ndarray:
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.normal(2000, 3, ROWS), rng.exponential(1e-3, ROWS), np.full(ROWS, 7.0)])
    return x.astype(np.float32)


def as_csr(x: np.ndarray) -> Csr:
    rows, columns = np.nonzero(x)
    indptr = np.searchsorted(rows, np.arange(len(x) + 1)).astype(np.int64)
    return Csr(x[rows, columns], columns.astype(np.int32), indptr, x.shape[1])


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "three.csv"
    path.write_text("".join(f"{a},{b},{c},{row % 3}\n" for row, (a, b, c) in enumerate(table())))
    return str(path)


@pytest.mark.parametrize("block", [7, 4096])
def test_moments_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(examples, "_BLOCK", block)
    x = table()
    x[::4, 1] = 0
    wide = x.astype(np.float64)
    for form in (x, as_csr(x)):
        mean, variance = column_moments(form)
        np.testing.assert_allclose(mean, wide.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(variance, wide.var(axis=0), rtol=1e-9, atol=1e-18)


def test_they_are_of_what_is_trained_on_and_the_same_for_any_parts(source: str) -> None:
    whole = read(source, 4)
    scales = whole.scales()
    assert scales == read(source, 7).scales()
    x = np.vstack([part["x"] for part in whole.parts(3)]).astype(np.float64)
    assert len(x) < ROWS, "what is held out is no part of them"
    np.testing.assert_allclose(scales["input_mean"], x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scales["input_sd"][:2], x.std(axis=0)[:2], rtol=1e-9)
    assert scales["input_sd"][2] == 1.0, "a column that never changes"


def test_the_curvature_is_the_largest_eigenvalue_of_what_is_standardized(source: str) -> None:
    found = read(source, 3)
    assert isinstance(found.train.x, np.ndarray)
    x = found.train.x[:, :2]  # the third never changes
    largest = float(np.linalg.eigvalsh(np.corrcoef(x.T.astype(np.float64)))[-1])
    assert largest <= found.scales()["input_curvature"] <= 1.2 * largest


def test_by_default_dense_inputs_have_them_and_sparse_or_very_many_do_not(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    made = prepare(blobs, "dense", source, 4, 0, "mlr", standardize=None)
    assert made.scales == {**read(source, 4).scales(), "standardize": True}
    assert prepare(blobs, "dense", source, 4, 0, "mlr", standardize=None) == made
    rows = "".join(f"{row % 2} {row + 1}:1 {row + 900}:2\n" for row in range(20))
    (tmp_path / "a.svm").write_text(rows)
    assert prepare(blobs, "sparse", str(tmp_path / "a.svm"), 4, 0, "mlr", standardize=None).scales == {}
    monkeypatch.setattr(examples, "_MOST_SCALED", 2)
    assert prepare(blobs, "wide", source, 4, 0, "mlr", standardize=None).scales == {}


def test_a_set_has_them_where_they_were_asked_for(source: str, tmp_path: Path) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    assert prepare(blobs, "plain", source, 4, 0, "mlr").scales == {}
    made = prepare(blobs, "scaled", source, 4, 0, "mlr", standardize=True)
    assert made.scales == read(source, 4).scales()
    again = prepare(blobs, "scaled", source, 4, 0, "mlr", standardize=True)
    assert again == made, "also where the set is found, to the last bit"
    with pytest.raises(InputError, match=r"was prepared from .* use another job id"):
        prepare(blobs, "plain", source, 4, 0, "mlr", standardize=True)


def test_too_many_columns_are_refused_before_anything_is_written(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "_MOST_SCALED", 2)
    blobs = Blobs((tmp_path / "blobs").as_uri())
    says = "--param standardize: the data have 3 columns, and at most 2 are standardized; scale them in the file"
    with pytest.raises(InputError, match=says):
        prepare(blobs, "job", source, 4, 0, "mlr", standardize=True)
    with pytest.raises(InputError, match=says):
        check_data(source, 4, "mlr", standardize=True)
    check_data(source, 4, "mlr")
    assert not (tmp_path / "blobs" / "jobs").exists()
