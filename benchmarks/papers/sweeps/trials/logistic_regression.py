"""Logistic regression by stochastic gradient descent on generated examples; the metric is the held-out cross entropy.

A step is a pass over the examples. A second-order solver (scikit-learn's default is L-BFGS) converges faster than
EarlyCurve's formula (4) can say (SpotTune, section V-B): tune one with ``stop: asha`` or ``stop: none``.
"""

import numpy as np

EXAMPLES, HELD_OUT, FEATURES = 20_000, 5_000, 200


def examples():
    """Two classes that overlap, in features that depend on each other."""
    rng = np.random.default_rng(31)
    mixing = rng.standard_normal((FEATURES, FEATURES)) * np.geomspace(1.0, 0.05, FEATURES)[:, None]
    x = rng.standard_normal((EXAMPLES + HELD_OUT, FEATURES)) @ mixing / FEATURES**0.5
    scores = x @ rng.standard_normal(FEATURES) * 2
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-scores))).astype(float)
    return x[:EXAMPLES], y[:EXAMPLES], x[EXAMPLES:], y[EXAMPLES:]


def train(trial):
    """Train with parameters `rate`, `decay` (of the rate, by pass) and `penalty` (L2)."""
    x, y, held_x, held_y = examples()
    state = trial.restore()
    weights = np.zeros(FEATURES) if state is None else state["weights"]
    for step in trial.steps():
        rate = trial.params["rate"] / (1 + trial.params["decay"] * step)
        order = np.random.default_rng([trial.seed, step]).permutation(EXAMPLES)
        for rows in order.reshape(-1, 200):
            probabilities = 1 / (1 + np.exp(-x[rows] @ weights))
            gradient = (probabilities - y[rows]) @ x[rows] / len(rows) + trial.params["penalty"] * weights
            weights = weights - rate * gradient
        scores = held_x @ weights
        trial.report(step, loss=np.mean(np.logaddexp(0, scores) - held_y * scores))
        trial.save({"weights": weights})
