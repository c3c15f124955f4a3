"""Sparse inputs: the matrix, and `mlr` on it beside `mlr` on the same matrix with its zeros."""

from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps import mlr
from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.single_process import initial, train_alone

ROWS, COLUMNS, CLASSES = 1300, 90, 4  # rows: several blocks of the kernel, the last one cut


def matrix(seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    x[rng.random(x.shape) < 0.95] = 0
    x[7] = 0  # a row without an entry
    return x


def sparse(x: np.ndarray[Any, Any]) -> Csr:
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return Csr(x[rows, columns], columns.astype(np.int32), indptr.astype(np.int64), x.shape[1])


def labels(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, 1]).integers(0, CLASSES, ROWS).astype(np.int32)


def app(**more: Any) -> MultinomialLogisticRegression:
    return MultinomialLogisticRegression(COLUMNS, CLASSES, ROWS, **{"l2": 0.1, "gamma": 0.05} | more)


def test_rows_are_taken_and_windowed_as_of_a_dense_matrix() -> None:
    x = matrix()
    c = sparse(x)
    rows = np.random.default_rng(1).permutation(ROWS)[:500]
    assert (c.shape, c[100:130].shape) == (x.shape, (30, COLUMNS))
    for ours, theirs in (
        (c, x),
        (c[100:700], x[100:700]),
        (c.take(rows), x[rows]),
        (c[7:].take(rows // 2), x[7:][rows // 2]),
    ):
        assert ours.dense().tobytes() == theirs.tobytes()
    assert c.take(rows[:0]).dense().shape == (0, COLUMNS)


@pytest.mark.parametrize("features", [0, 32])
def test_mlr_on_sparse_and_dense_forms_agrees_and_repeats_itself_to_the_bit(features: int) -> None:
    of, x, y = app(features=features), matrix(), labels()
    (table,) = of.tables()
    weights = np.random.default_rng(2).standard_normal((table.n_rows, table.n_cols)).astype(np.float32)
    weights.flags.writeable = False  # as an agent hands them out
    full, few = of.prepare({"x": x, "y": y}), of.prepare({**sparse(x).arrays(), "y": y})
    assert isinstance(few.x, Csr)
    dense, first, again = (of.run(data, {"weights": weights}, 3) for data in (full, few, few))
    assert first.updates["weights"].tobytes() == again.updates["weights"].tobytes()
    assert (first.loss_sum, first.examples) == (again.loss_sum, dense.examples)
    assert first.loss_sum == pytest.approx(dense.loss_sum, rel=1e-6)
    assert np.allclose(first.updates["weights"], dense.updates["weights"], rtol=1e-4, atol=1e-6)
    here, there = (of.evaluate({"weights": weights}, arrays | {"y": y}) for arrays in (sparse(x).arrays(), {"x": x}))
    assert here == pytest.approx(there, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_data": None}, "no array 'x'"),
        ({"x_cols": None}, "no array 'x_cols'"),
        ({"y": None}, "no array 'y'"),
        ({"x_indptr": np.array([0, 2, 1])}, "x_indptr: wanted row bounds"),
        ({"x_indptr": np.array([1, 2])}, "x_indptr: wanted row bounds"),
        ({"x_indptr": np.array([0, 4])}, r"x_data \(3,\) and x_indices \(3,\): wanted \(4,\) each"),
        ({"x_indices": np.array([0, 1])}, "x_indices"),
        ({"x_indices": np.array([0, 1, COLUMNS])}, f"x_indices from 0 to {COLUMNS}: wanted 0 to {COLUMNS - 1}"),
        ({"x_indices": np.array([0, -1, 1])}, "x_indices from -1 to 1"),
        ({"x_cols": np.asarray(COLUMNS + 1)}, rf"x \(2, {COLUMNS + 1}\) and y \(2,\): wanted \(n, {COLUMNS}\)"),
    ],
)
def test_a_partition_that_a_kernel_could_not_trust_is_refused(change: dict[str, Any], message: str) -> None:
    good = Csr(np.ones(3, np.float32), np.array([0, 1, 5], np.int32), np.array([0, 2, 3], np.int64), COLUMNS)
    arrays = {**good.arrays(), "y": np.zeros(2, np.int32)}
    app().prepare(arrays)
    with pytest.raises(ValueError, match=message):
        app().prepare({name: array for name, array in (arrays | change).items() if array is not None})


@pytest.mark.parametrize("batch", [0, 50])
def test_a_partition_of_few_columns_reads_and_writes_their_weights_alone(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """The model is, bit for bit, that of partitions that read and write all."""
    of, x, y = app(l2=0.0, batch=batch, step=2.0), matrix(), labels()
    x[:600, 40:], x[600:, :70] = 0, 0
    raw = [{**sparse(x[part]).arrays(), "y": y[part]} for part in (slice(0, 600), slice(600, None))]

    def trained() -> Any:
        parts = [of.prepare(arrays) for arrays in raw]
        return parts, train_alone(of, parts, initial(of, 0), 5)["weights"]

    parts, weights = trained()
    assert [of.rows(part, 1)["weights"].tolist() for part in parts] == [[*range(40), 90], [*range(70, 91)]]
    assert [part.x.shape for part in parts] == [(600, 40), (700, 20)]
    said = of.evaluate({"weights": weights}, {**sparse(x).arrays(), "y": y})
    assert said["accuracy"] > 0.3
    monkeypatch.setattr(mlr, "_FEW", 0.0)
    parts, whole = trained()
    assert [of.rows(part, 1) for part in parts] == [{}, {}]
    assert weights.tobytes() == whole.tobytes()


@pytest.mark.parametrize("more", [{"l2": 0.1}, {"l2": 0.0, "features": 8}])
def test_a_penalty_is_on_all_weights_and_features_are_of_all_inputs(more: dict[str, Any]) -> None:
    x = matrix()
    x[:, 10:] = 0
    part = app(**more).prepare({**sparse(x).arrays(), "y": labels()})
    assert app(**more).rows(part, 1) == {}
