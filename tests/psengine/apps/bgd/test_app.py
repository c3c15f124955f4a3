"""The application: ten classes, sparse inputs, a target of numbers; what it saves predicts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from proteus_spot.psengine.apps.bgd.app import ElasticDescent, average_precision
from proteus_spot.psengine.single_process import JobAlone, initial
from tests.psengine.apps.bgd.test_losses import csr, examples

COUNT = 4


def train(arrays: dict[str, np.ndarray], clocks: int, n_classes: int, lose_at: int = 0, **params: Any) -> Any:
    n = len(arrays["y"])
    app = ElasticDescent(arrays["n_inputs"], n, COUNT, n_classes, **params)
    parts = [{name: arrays[name][p::COUNT] for name in ("x", "y")} for p in range(COUNT)]
    if arrays.get("sparse"):
        parts = [csr(part["x"]).arrays() | {"y": part["y"]} for part in parts]
    job = JobAlone(app, [app.prepare(part) for part in parts], initial(app, 0), driver=lambda: app.driver(clocks))
    while job.driver.end is None:
        if job.driver.clock == lose_at > 0:
            job.lose([1, 2])
        elif job.driver.clock == lose_at + 3:
            job.bring_back([1, 2])
        for task in job.ready():
            job.run(task)
    return app, job.tables(), job.driver.end[1]


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_ten_classes(loss: str) -> None:
    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target
    held = np.arange(len(y)) % 5 == 0
    app, params, reason = train({"x": x[~held], "y": y[~held], "n_inputs": 64}, 40, 10, lose_at=10, loss=loss, l2=1e-3)
    figures = app.evaluate(params, {"x": x[held], "y": y[held]})
    assert figures["accuracy"] > 0.94
    assert reason == "40 rounds; redone rounds: 1"
    assert app.predicts == "class"
    assert (app.predict(params, {"x": x[held]}) == y[held]).mean() == figures["accuracy"]


def test_sparse_inputs_end_where_dense_ones_do() -> None:
    x, y = examples("logistic", 2, n=80)
    found = [
        train({"x": x, "y": y, "n_inputs": 5, "sparse": sparse}, 30, 2, lose_at=2, solver="gradient")[1]["weights"]
        for sparse in (False, True)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


def test_a_target_of_numbers() -> None:
    x, y = examples("squared", 0, n=80)
    app, params, reason = train({"x": x, "y": y.astype(np.float32), "n_inputs": 5}, 200, 0, l2=0.01, lose_at=2)
    assert reason.startswith("no step decreases the objective")
    from sklearn.linear_model import Ridge

    peer = Ridge(alpha=0.01 * len(y), tol=1e-12).fit(x.astype(np.float64), y.astype(np.float32))
    np.testing.assert_allclose(app.predict(params, {"x": x}), peer.predict(x.astype(np.float64)), atol=1e-5)
    assert app.predicts == "value"
    rmse = float(np.sqrt(np.mean((app.predict(params, {"x": x}) - y.astype(np.float32)) ** 2)))
    assert app.evaluate(params, {"x": x, "y": y.astype(np.float32)})["rmse"] == pytest.approx(rmse)


def test_a_constant_step_decays_as_it_says() -> None:
    x, y = examples("logistic", 2, n=80)
    arrays = {"x": x, "y": y, "n_inputs": 5}
    params = [train(arrays, 2, 2, solver="gradient", step=1.0, decay=decay)[1] for decay in (0.0, 1.0)]
    moves = [one["weights"] - one["previous"] for one in params]
    np.testing.assert_allclose(moves[1], moves[0] / 2, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_the_area_under_the_precision_recall_curve_is_that_of_scikit_learn(ranked: list[tuple[int, bool]]) -> None:
    scores, positive = np.array([float(score) for score, _ in ranked]), np.array([yes for _, yes in ranked])
    if not positive.any():
        assert np.isnan(average_precision(scores, positive))
        return
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores))


def test_what_is_evaluated_of_each_kind_of_target() -> None:
    x, y = examples("logistic", 2, n=80)
    two, params, _ = train({"x": x, "y": y, "n_inputs": 5}, 20, 2)
    figures = two.evaluate(params, {"x": x, "y": y})
    assert figures.keys() == {"accuracy", "loss", "auprc"}
    margins = x @ params["weights"][:-1, 0] + params["weights"][-1, 0]
    assert figures["auprc"] == pytest.approx(average_precision_score(y, margins))
    x, y = examples("logistic", 3, n=80)
    several, params, _ = train({"x": x, "y": y, "n_inputs": 5}, 5, 3)
    assert several.evaluate(params, {"x": x, "y": y}).keys() == {"accuracy", "loss"}


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"loss": "cube"}, "loss is 'cube'; want one of logistic, hinge, squared"),
        ({"solver": "newton"}, "solver is 'newton'; want one of lbfgs, gradient"),
        ({"missing": "panic"}, "missing is 'panic'; want one of approximate, ignore, stall"),
        ({"approximation": "none"}, "approximation is 'none'; want one of kept, redone"),
        ({"decay": 1.0}, "decay is 1, and the step is searched for; give step, or leave decay out"),
        ({"step": 0.5}, "step is 0.5, and L-BFGS searches for its steps; give solver=gradient with it"),
        ({"l2": -1.0}, "l2 is -1.0; want a number from 0"),
        ({"memory": 0}, "memory is 0; want a whole number from 1"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}$"):
        ElasticDescent(4, 10, 2, 2, **params)


@pytest.mark.parametrize(
    ("loss", "classes", "fault"),
    [
        ("squared", 3, "loss=squared wants a target of numbers"),
        ("hinge", 0, "loss hinge wants labels of two classes or more; the data have 0"),
        ("", 1, "loss logistic wants labels of two classes or more; the data have 1"),
    ],
)
def test_a_target_that_does_not_fit_the_loss_is_named(loss: str, classes: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ElasticDescent(4, 10, 2, classes, loss=loss).check_sizes()
