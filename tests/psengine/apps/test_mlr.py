from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError


def blobs(n: int = 600, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return {"x": (centres[y] + 0.4 * rng.standard_normal((n, 2))).astype(np.float32), "y": y.astype(np.int32)}


def app(**more: float) -> MultinomialLogisticRegression:
    return MultinomialLogisticRegression(2, 3, 600, **more)  # type: ignore[arg-type]


def start(of: MultinomialLogisticRegression, seed: int = 1) -> np.ndarray:
    (table,) = of.tables()
    return np.random.default_rng(seed).standard_normal((table.n_rows, table.n_cols)).astype(np.float32)


@pytest.mark.parametrize("features", [0, 16])
def test_the_step_is_along_the_gradient_of_the_loss(features: int) -> None:
    """Against finite differences of the loss that the kernel itself reports, penalty added by hand."""
    of, data = app(features=features, step=1.0, l2=0.1), blobs()
    prepared = of.prepare(data)
    weights = start(of)
    step = -of.run(prepared, {"weights": weights}, 1).updates["weights"]

    def objective(w: np.ndarray) -> float:
        return of.run(prepared, {"weights": w}, 1).loss_sum / 600 + 0.05 * float((w[:-1].astype(float) ** 2).sum())

    for row, column in [(0, 0), (1, 2), (weights.shape[0] - 1, 1)]:
        nudge = np.zeros_like(weights)
        nudge[row, column] = 1e-2
        slope = (objective(weights + nudge) - objective(weights - nudge)) / 2e-2
        assert step[row, column] == pytest.approx(slope, rel=2e-2, abs=2e-4)


def test_partitions_add_up_to_the_whole() -> None:
    of, data = app(features=8, l2=0.01), blobs()
    weights = {"weights": start(of)}
    whole = of.run(of.prepare(data), weights, 1)
    halves = [of.run(of.prepare({k: v[i::2] for k, v in data.items()}), weights, 1) for i in (0, 1)]
    assert sum(h.examples for h in halves) == whole.examples
    assert sum(h.loss_sum for h in halves) == pytest.approx(whole.loss_sum, rel=1e-6)
    assert np.allclose(sum(h.updates["weights"] for h in halves), whole.updates["weights"], atol=1e-6)


@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_a_batch_of_all_examples_is_the_step_along_the_gradient(l2: float) -> None:
    one, other = app(step=0.3, l2=l2), app(step=0.3, l2=l2, batch=600)
    weights = {"weights": start(one)}
    works = [of.run(of.prepare(blobs()), weights, 1) for of in (one, other)]
    assert np.allclose(works[0].updates["weights"], works[1].updates["weights"], atol=1e-6)
    assert works[0].loss_sum == pytest.approx(works[1].loss_sum, rel=1e-6)


def test_in_batches_the_model_is_the_mean_of_where_the_partitions_end() -> None:
    of, data = app(step=0.5, decay=1.0, l2=0.1, batch=64), blobs()
    of_batch = MultinomialLogisticRegression(2, 3, 64, step=0.25, l2=0.1)  # the step of clock 2
    parts = [{name: rows[:400] for name, rows in data.items()}, {name: rows[400:] for name, rows in data.items()}]
    before = start(of)
    ends = []
    for part in parts:
        model = before
        for low in range(0, len(part["y"]), 64):
            some = of_batch.prepare({name: rows[low : low + 64] for name, rows in part.items()})
            of_batch.n_examples = len(some.y)
            model = model + of_batch.run(some, {"weights": model}, 1).updates["weights"]
        ends.append(model)
    updates = [of.run(of.prepare(part), {"weights": before}, 2).updates["weights"] for part in parts]
    assert np.allclose(before + sum(updates), (2 * ends[0] + ends[1]) / 3, atol=1e-5)


def test_batches_of_sparse_inputs_are_those_of_dense_ones() -> None:
    data = blobs()
    x = data["x"] * (np.abs(data["x"]) > 0.5)
    indptr = np.concatenate([[0], np.cumsum((x != 0).sum(axis=1))])
    sparse = Csr(x[x != 0], np.nonzero(x)[1].astype(np.int32), indptr.astype(np.int64), 2).arrays() | {"y": data["y"]}
    of = app(step=0.5, batch=50, l2=0.01)
    weights = {"weights": start(of)}
    dense = of.run(of.prepare({"x": x, "y": data["y"]}), weights, 1).updates["weights"]
    assert np.allclose(of.run(of.prepare(sparse), weights, 1).updates["weights"], dense, atol=1e-5)


def test_in_batches_a_few_clocks_are_enough() -> None:
    losses = {}
    for batch in (0, 16):
        of = app(step=0.5, batch=batch)
        prepared, weights = of.prepare(blobs()), np.zeros((3, 3), np.float32)
        for clock in (1, 2, 3):
            weights = weights + of.run(prepared, {"weights": weights}, clock).updates["weights"]
        losses[batch] = of.evaluate({"weights": weights}, blobs(seed=5))["loss"]
    assert losses[16] < losses[0] / 3


def test_it_learns_and_its_evaluation_is_right() -> None:
    of, data = app(step=1.0), blobs()
    prepared, weights = of.prepare(data), np.zeros((3, 3), np.float32)
    for clock in range(1, 60):
        weights = weights + of.run(prepared, {"weights": weights}, clock).updates["weights"]
    figures = of.evaluate({"weights": weights}, blobs(seed=5))
    scores = blobs(seed=5)["x"] @ weights[:-1] + weights[-1]
    assert figures["accuracy"] == np.mean(scores.argmax(axis=1) == blobs(seed=5)["y"]) > 0.95
    assert figures["loss"] == pytest.approx(of.run(of.prepare(blobs(seed=5)), {"weights": weights}, 1).loss_sum / 600)


def test_the_step_decays_and_features_are_the_same_in_every_process() -> None:
    a, b = app(features=32, decay=0.5), app(features=32, decay=0.5)
    prepared, weights = a.prepare(blobs()), {"weights": start(a)}
    first, third = (a.run(prepared, weights, clock).updates["weights"] for clock in (1, 3))
    assert np.allclose(third * 2, first, rtol=1e-5)
    assert b.run(prepared, weights, 1).updates["weights"].tobytes() == first.tobytes()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 2))}, "no array 'y'"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(2)}, r"x \(2, 3\)"),
        ({"x": np.zeros((2, 2)), "y": np.array([0, 3])}, "labels from 0 to 3: wanted 0 to 2"),
    ],
)
def test_bad_data_are_told(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        app().prepare(arrays)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("mlp", {}, r"app 'mlp' is not known: use one of mlr, .*or module:Class"),
        ("nowhere:App", {}, "cannot be imported on this node"),
        ("mlr", {"n_inputs": 2}, "does not take these app_params"),
        ("mlr", {"n_inputs": 2, "n_classes": 2, "n_examples": 2, "batch": -1}, "batch is -1"),
    ],
)
def test_an_application_that_cannot_be_made_is_told(name: str, params: dict[str, int], message: str) -> None:
    with pytest.raises(JobError, match=message):
        resolve(name, params)


def scaled(sparse: bool = False) -> tuple[MultinomialLogisticRegression, dict[str, np.ndarray], np.ndarray]:
    """An application of inputs on two scales, its data, and those as they should reach the kernel."""
    data = blobs()
    data["x"] = data["x"] * np.float32([1000, 0.01]) + (0 if sparse else np.float32([5000, 0]))
    x = data["x"].astype(np.float64)
    mean, sd = x.mean(axis=0), x.std(axis=0)
    of = MultinomialLogisticRegression(2, 3, 600, standardize=True, input_mean=mean.tolist(), input_sd=sd.tolist())
    return of, data, (x / sd if sparse else (x - mean) / sd)


def test_inputs_are_standardized_where_they_are_trained_on_evaluated_and_predicted_from() -> None:
    of, data, wanted = scaled()
    plain = app()
    np.testing.assert_allclose(of.prepare(data).x, wanted, atol=2e-3)  # type: ignore[arg-type]
    own = of.prepare(data)
    weights = {"weights": start(of)}
    same = {"x": own.x, "y": data["y"]}
    assert of.evaluate(weights, data) == plain.evaluate(weights, same)  # type: ignore[arg-type]
    assert (of.predict(weights, {"x": data["x"]}) == plain.predict(weights, {"x": own.x})).all()  # type: ignore[dict-item]
    assert data["x"].max() > 1000, "what was handed in stays as it was"


def test_the_same_inputs_become_the_same_bits_in_any_partition() -> None:
    of, data, _ = scaled()
    whole = of.prepare(data).x
    parts = [of.prepare({name: rows[low : low + 150] for name, rows in data.items()}).x for low in range(0, 600, 150)]
    assert np.vstack(parts).tobytes() == whole.tobytes()  # type: ignore[arg-type, union-attr]


def test_compressed_rows_are_divided_and_what_is_zero_stays_so() -> None:
    of, data, wanted = scaled(sparse=True)
    x = data["x"]
    x[::2, 0] = 0
    rows, columns = np.nonzero(x)
    indptr = np.searchsorted(rows, np.arange(len(x) + 1)).astype(np.int64)
    part = of.prepare({**Csr(x[rows, columns], columns.astype(np.int32), indptr, 2).arrays(), "y": data["y"]}).x
    assert isinstance(part, Csr)
    wanted[::2, 0] = 0
    np.testing.assert_allclose(part.dense(), wanted, rtol=1e-5)
    assert len(part.data) == len(rows)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_chosen_steps_reach_the_least_loss_whatever_the_data(correlation: float, noise: float) -> None:
    rng = np.random.default_rng(0)
    common = np.sqrt(correlation) * rng.standard_normal((300, 1))
    x = (common + np.sqrt(1 - correlation) * rng.standard_normal((300, 20))).astype(np.float32)
    scores = x @ rng.standard_normal((20, 3)) + noise * rng.gumbel(size=(300, 3))
    data = {"x": x, "y": scores.argmax(axis=1)}
    mean, sd = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    curvature = float(np.linalg.eigvalsh(np.corrcoef(x.T))[-1])

    def losses(clocks: int, **step: float) -> list[float]:
        scales = {"input_mean": mean.tolist(), "input_sd": sd.tolist(), "input_curvature": curvature}
        of = MultinomialLogisticRegression(20, 3, 300, standardize=True, l2=0.01, **scales, **step)  # type: ignore[arg-type]
        part, weights, found = of.prepare(data), start(of), []
        for clock in range(1, clocks + 1):
            work = of.run(part, {"weights": weights}, clock)
            weights = weights + work.updates["weights"]
            found.append(work.loss_sum / 300)
        return found

    chosen, equal = losses(64)[-1], losses(64, step=1.0 / (0.5 * curvature + 0.01))[-1]
    least = losses(1000, step=1.0 / (0.5 * curvature + 0.01))[-1]
    assert chosen <= equal + 1e-4
    assert chosen <= least + 0.1


def test_steps_are_chosen_only_where_nothing_else_says_them() -> None:
    def steps(**params: Any) -> list[float]:
        of = MultinomialLogisticRegression(2, 3, 9, **{"standardize": True, "input_curvature": 4.0, **params})
        return [of._step(clock) for clock in (1, 2, 3, 4, 128, 256)]

    r = 1 + 2**0.5
    assert steps() == pytest.approx([(1 + r**power) / 2 for power in (-1, 0, -1, 1, 6, 6)])
    assert steps(l2=2.0) == pytest.approx([(1 + r**power) / 4 for power in (-1, 0, -1, 1, 6, 6)])
    for other in ({"step": 1.0}, {"batch": 4}, {"standardize": False}, {"input_curvature": 0.0}, {"features": 8}):
        assert steps(**other) == [1.0] * 6
    assert steps(decay=1.0)[:2] == [1.0, 0.5]


def test_standardizing_needs_the_scales_and_a_truth_value() -> None:
    with pytest.raises(
        ValueError, match=r"standardize: input_mean has shape \(0,\) .* wanted \(2,\): the data set says"
    ):
        app(standardize=True).prepare(blobs())
    with pytest.raises(JobError, match="standardize is 'yes'; want true or false"):
        resolve("mlr", {"n_inputs": 2, "n_classes": 3, "n_examples": 9, "standardize": "yes"})
