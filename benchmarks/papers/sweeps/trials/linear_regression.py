"""Linear regression by stochastic gradient descent on generated examples; the metric is the held-out squared error.

A step is a pass over the examples. Gradient descent converges as EarlyCurve assumes. A second-order solver (L-BFGS,
Newton, conjugate gradients) converges faster than its formula (4) can say (SpotTune, section V-B): tune one with
``stop: asha`` or ``stop: none``.
"""

import numpy as np

EXAMPLES, HELD_OUT, FEATURES = 40_000, 10_000, 90


def examples():
    """Features of very different scales, so that some weights are learnt in few passes and others in many."""
    rng = np.random.default_rng(30)
    scales = np.geomspace(1.0, 0.03, FEATURES)
    x = rng.standard_normal((EXAMPLES + HELD_OUT, FEATURES)) * scales
    y = x @ (rng.standard_normal(FEATURES) / scales**0.5) + 0.3 * rng.standard_normal(len(x))
    return x[:EXAMPLES], y[:EXAMPLES], x[EXAMPLES:], y[EXAMPLES:]


def train(trial):
    """Train with parameters `rate` and `batch`."""
    x, y, held_x, held_y = examples()
    state = trial.restore()
    weights = np.zeros(FEATURES) if state is None else state["weights"]
    for step in trial.steps():
        order = np.random.default_rng([trial.seed, step]).permutation(EXAMPLES)
        for rows in order.reshape(-1, trial.params["batch"]):
            errors = x[rows] @ weights - y[rows]
            weights = weights - trial.params["rate"] * (errors @ x[rows]) / len(rows)
        trial.report(step, loss=np.mean((held_x @ weights - held_y) ** 2))
        trial.save({"weights": weights})
