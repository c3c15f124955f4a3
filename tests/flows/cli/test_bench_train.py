"""`proteus bench train`: what it measures is what it says; the measuring itself is for an idle machine."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.training import train_mlr
from proteus_spot.benchmarks.training.generated_examples import generated_examples
from proteus_spot.benchmarks.training.through_engine import through_engine
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.single_process import initial, train_alone


def test_generated_examples_are_the_same_for_a_seed_and_can_be_told_apart() -> None:
    x, y = generated_examples(5000, 20, 3, seed=1)
    again, labels = generated_examples(5000, 20, 3, seed=1)
    assert x.tobytes() == again.tobytes()
    assert y.tobytes() == labels.tobytes()
    assert (x.dtype, x.shape, set(y)) == (np.float32, (5000, 20), {0, 1, 2})
    app = MultinomialLogisticRegression(20, 3, 5000, step=0.1, batch=32)
    tables = train_alone(app, [app.prepare({"x": x, "y": y})], initial(app, 0), 3)
    assert 0.6 < app.evaluate(tables, {"x": x, "y": y})["accuracy"] < 0.98


def test_the_clocks_to_a_mark_are_the_fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_mlr, "INPUTS", 20)
    monkeypatch.setattr(train_mlr, "CLASSES", 3)
    x, y = generated_examples(600, 20, 3, seed=1)
    held, parts = {"x": x[:100], "y": y[:100]}, [{"x": x[100 + s :: 2], "y": y[100 + s :: 2]} for s in (0, 1)]
    app = MultinomialLogisticRegression(**train_mlr._params(0.1, parts))
    losses: list[float] = []
    data = [app.prepare(part) for part in parts]
    train_alone(app, data, initial(app, 0), 4, lambda c, t, _: losses.append(app.evaluate(t, held)["loss"]))
    assert losses[0] > losses[1] > losses[2]
    assert train_mlr._clocks(0.1, parts, held, losses[2]) == 3
    assert train_mlr._clocks(0.1, parts, held, 0.0) == train_mlr._MOST_CLOCKS + 1


@pytest.mark.e2e
def test_through_the_engine_the_model_is_that_of_the_bare_loop(tmp_path: Path) -> None:
    x, y = generated_examples(300, 20, 3, seed=1)
    parts, held = [{"x": x[s::2], "y": y[s::2]} for s in (0, 1)], {"x": x[:50], "y": y[:50]}
    params = {"n_inputs": 20, "n_classes": 3, "n_examples": 300, "step": 0.1, "batch": 16}
    app = MultinomialLogisticRegression(**params)  # type: ignore[arg-type]
    alone = train_alone(app, [app.prepare(part) for part in parts], initial(app, 0, 2), 5)
    result, model = through_engine(tmp_path, "mlr", params, parts, held, 5, n_shards=2)
    assert model["weights"].tobytes() == alone["weights"].tobytes()
    assert result["metrics"] == app.evaluate(alone, held)
    assert (result["clocks"], result["lost_micro_tasks"]) == (5, 0)
    assert result["seconds"] > 0
