"""A small convolutional network by Adam, in JAX, on scikit-learn's digits; the metric is the held-out cross entropy.

A step is a pass over the images.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

BATCH = 128
ADAM = optax.scale_by_adam()


def examples():
    """Images of 8 x 8 points, 512 of them held out."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(34).permutation(len(x))
    x, y = (x[order] / 16).reshape(-1, 8, 8, 1).astype(np.float32), y[order]
    return x[512:], y[512:], x[:512], y[:512]


def initial(seed, width):
    """Two convolutions and a dense layer; the initial weights are those of He et al. (2015)."""
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = {"first": (3, 3, 1, width), "second": (3, 3, width, 2 * width), "dense": (2 * width * 4, 10)}
    weights = {
        name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return weights | {"bias": jnp.zeros(10)}


def convolved(x, weights):
    """Convolve as one matrix product over patches (XLA's own convolution is slow in a loop on a CPU), and pool."""
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = [
        padded[:, row : row + x.shape[1], column : column + x.shape[2]] for row in range(3) for column in range(3)
    ]
    x = jax.nn.relu(jnp.concatenate(patches, axis=-1) @ weights.reshape(-1, weights.shape[-1]))
    return x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).max((2, 4))


@jax.jit
def loss(weights, x, y):
    x = convolved(convolved(x, weights["first"]), weights["second"])
    scores = x.reshape(len(x), -1) @ weights["dense"] + weights["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()


@jax.jit
def one_pass(weights, moments, batches, rate, decay):
    """Take the steps of AdamW; rate and decay are arguments, so that trials share what is compiled."""

    def update(state, batch):
        weights, moments = state
        changes, moments = ADAM.update(jax.grad(loss)(weights, *batch), moments)
        changes = jax.tree.map(lambda change, weight: -rate * (change + decay * weight), changes, weights)
        return (optax.apply_updates(weights, changes), moments), None

    return jax.lax.scan(update, (weights, moments), batches)[0]


def train(trial):
    """Train with parameters `rate`, `width` and `decay` (of the weights)."""
    x, y, held_x, held_y = examples()
    weights = initial(trial.seed, trial.params["width"])
    moments = ADAM.init(weights)
    state = trial.restore()
    if state is not None:
        weights, moments = jax.tree.unflatten(jax.tree.structure((weights, moments)), state["leaves"])
    for step in trial.steps():
        order = np.random.default_rng([trial.seed, step]).permutation(len(x))
        rows = order[: len(x) // BATCH * BATCH].reshape(-1, BATCH)
        weights, moments = one_pass(weights, moments, (x[rows], y[rows]), trial.params["rate"], trial.params["decay"])
        trial.report(step, loss=loss(weights, held_x, held_y))
        trial.save({"leaves": jax.tree.leaves((weights, moments))})
