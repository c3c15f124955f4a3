"""Losses and gradients, dense and sparse, against differences and against scikit-learn."""

import numpy as np
import pytest

from proteus_spot.psengine.apps.bgd import ElasticDescent
from proteus_spot.psengine.apps.bgd.losses import linear_loss
from proteus_spot.psengine.apps.bgd.partition import LinearPartition
from proteus_spot.psengine.apps.bgd.tasks import DescentExecutor
from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.single_process import drive_alone, initial

KINDS = [("logistic", 2), ("logistic", 3), ("hinge", 2), ("hinge", 3), ("squared", 0)]


def csr(x: np.ndarray) -> Csr:
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(x, axis=1))]).astype(np.int64)
    del rows
    return Csr(x[x != 0].astype(np.float32), columns.astype(np.int32), indptr, x.shape[1])


def examples(loss: str, classes: int, n: int = 40, inputs: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, inputs)).astype(np.float32) * (rng.random((n, inputs)) < 0.5)
    scores = x @ rng.standard_normal((inputs, max(classes, 1))) + 0.3 * rng.standard_normal((n, max(classes, 1)))
    return x, scores[:, 0] if loss == "squared" else scores.argmax(axis=1)


@pytest.mark.parametrize(("name", "classes"), KINDS)
def test_gradient_and_line_are_those_of_the_loss(name: str, classes: int) -> None:
    x, y = examples(name, classes)
    loss = linear_loss(name, classes)
    dense, sparse = (LinearPartition(inputs, y, loss, 1 / len(y)) for inputs in (x, csr(x)))
    rng = np.random.default_rng(2)
    weights, direction = (rng.standard_normal((6, loss.n_outputs)) for _ in range(2))
    value, gradient = dense.gradient(weights)
    sparse_value, sparse_gradient = sparse.gradient(weights)
    assert sparse_value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(sparse_gradient, gradient, atol=1e-12)
    h = 1e-6
    for index in np.ndindex(weights.shape):
        ahead, behind = weights.copy(), weights.copy()
        ahead[index] += h
        behind[index] -= h
        slope = (dense.gradient(ahead)[0] - dense.gradient(behind)[0]) / (2 * h)
        assert gradient[index] == pytest.approx(slope, abs=1e-6)
    for one in (dense, sparse):
        value, slope = one.line(one.margins(weights), direction).at(0.3)
        there = dense.gradient(weights + 0.3 * direction)
        assert value == pytest.approx(there[0], rel=1e-12)
        assert slope == pytest.approx(float(np.vdot(there[1], direction)), abs=1e-12)


class WithPenalisedConstant(ElasticDescent):
    """The penalty is on the constant, too, as liblinear's."""

    def executor(self, data: LinearPartition, partition: int, n_partitions: int) -> DescentExecutor:
        return DescentExecutor(data, np.full((self.n_inputs + 1, 1), self.l2), True)


@pytest.mark.parametrize(("name", "classes"), KINDS)
def test_lbfgs_ends_where_scikit_learn_does(name: str, classes: int) -> None:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.svm import LinearSVC

    x, y = examples(name, classes, n=120)
    wide, l2 = x.astype(np.float64), 0.05
    kind = WithPenalisedConstant if name == "hinge" else ElasticDescent
    app = kind(5, len(y), 4, classes, loss=name, l2=l2)
    model = drive_alone(app, [app.prepare({"x": x[p::4], "y": y[p::4]}) for p in range(4)], initial(app, 0), 2000)[0]
    if name == "logistic":
        peer = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-9, max_iter=5000).fit(wide, y)
    elif name == "hinge":
        peer = LinearSVC(C=1 / (l2 * len(y)), tol=1e-9, max_iter=100000, dual=True).fit(wide, y)
    else:
        peer = Ridge(alpha=l2 * len(y), tol=1e-12).fit(wide, y)
    ours = wide @ model["weights"][:-1] + model["weights"][-1]
    theirs = peer.predict(wide) if name == "squared" else peer.decision_function(wide)
    np.testing.assert_allclose(ours, theirs.reshape(len(x), -1), atol=2e-4)


def test_losses_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="loss is 'cube'; want one of logistic, hinge, squared"):
        linear_loss("cube", 2)
    with pytest.raises(ValueError, match="two classes or more; the data have 1"):
        linear_loss("hinge", 1)


def test_logistic_is_finite_far_from_zero() -> None:
    value, slopes = linear_loss("logistic", 2).terms(np.array([[1e4], [-1e4]]), np.array([0, 0]))
    assert value == pytest.approx(1e4)
    np.testing.assert_allclose(slopes, [[1.0], [0.0]])
