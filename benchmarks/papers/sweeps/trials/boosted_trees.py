"""Gradient-boosted regression trees by LightGBM on generated examples; the metric is the held-out squared error.

A step is a boosting round. The saved state is the booster, in LightGBM's own format.
"""

import lightgbm
import numpy as np

EXAMPLES, HELD_OUT, FEATURES = 20_000, 5_000, 20


def examples():
    """Friedman's first function of five features, noise, and fifteen features that mean nothing."""
    rng = np.random.default_rng(33)
    x = rng.random((EXAMPLES + HELD_OUT, FEATURES))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    y += rng.standard_normal(len(y))
    return x[:EXAMPLES], y[:EXAMPLES], x[EXAMPLES:], y[EXAMPLES:]


def train(trial):
    """Train with parameters `rate`, `leaves` and `least` (examples in a leaf)."""
    x, y, held_x, held_y = examples()
    parameters = {
        "objective": "regression",
        "learning_rate": trial.params["rate"],
        "num_leaves": trial.params["leaves"],
        "min_data_in_leaf": trial.params["least"],
        "num_threads": 1,
        "deterministic": True,
        "seed": trial.seed,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(x, y, params=parameters, free_raw_data=False)
    restored, predicted = trial.restore(), np.zeros(len(held_y))
    booster = lightgbm.Booster(parameters, data) if restored is None else None
    if restored is not None:
        predicted = restored.predict(held_x)
    for step in trial.steps():
        if booster is None:  # a booster that was loaded has no data to go on with
            booster = lightgbm.train(parameters, data, 1, init_model=restored, keep_training_booster=True)
        else:
            booster.update()
        predicted = predicted + booster.predict(held_x, start_iteration=step - 1, num_iteration=1)
        trial.report(step, loss=np.mean((predicted - held_y) ** 2))
        trial.save(booster)
