"""Support vector machine, linear or with a kernel, by gradient descent on scikit-learn's digits; held-out hinge loss.

A step is one descent over all examples, of ten machines, each of a digit against the others. The linear machine is
the kernel machine of the linear kernel. Solvers of the dual by coordinates, as LIBSVM's, converge faster than
EarlyCurve's formula (4) can say (SpotTune, section V-B).
"""

import numpy as np
from sklearn.datasets import load_digits


def examples():
    """The digits, three quarters to learn from; targets of -1 and 1, a column for each digit."""
    x, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(32).permutation(len(x))
    x, digits = x[order] / 16, digits[order]
    y = np.where(digits[:, None] == np.arange(10), 1.0, -1.0)
    held = len(x) // 4
    return x[held:], y[held:], x[:held], y[:held]


def kernel(name, left, right):
    if name == "linear":
        return left @ right.T / left.shape[1]
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    return np.exp(-0.05 * squares)


def train(trial):
    """Train with parameters `kernel` (linear, rbf), `rate` and `penalty`."""
    x, y, held_x, held_y = examples()
    gram, held_gram = kernel(trial.params["kernel"], x, x), kernel(trial.params["kernel"], held_x, x)
    state = trial.restore()
    alpha = np.zeros_like(y) if state is None else state["alpha"]
    for step in trial.steps():
        active = y * (gram @ alpha) < 1
        alpha = (1 - trial.params["rate"] * trial.params["penalty"]) * alpha + trial.params["rate"] / len(
            x
        ) * active * y
        trial.report(step, loss=np.mean(np.maximum(0, 1 - held_y * (held_gram @ alpha))))
        trial.save({"alpha": alpha})
