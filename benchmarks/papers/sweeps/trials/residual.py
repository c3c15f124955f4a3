"""A residual network by Adam, in JAX, on generated images; the learning rate is cut once, so its curve has two stages.

A step is a pass over the images; the metric is the held-out cross entropy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, SIZE, CLASSES = 128, 8, 8
EXAMPLES, HELD_OUT = 1_024, 512
ADAM = optax.scale_by_adam()


def examples():
    """Gratings of eight directions, each with a phase of its own, under noise."""
    rng = np.random.default_rng(35)
    y = rng.integers(0, CLASSES, EXAMPLES + HELD_OUT)
    angles, phases = y * np.pi / CLASSES, rng.uniform(0, 2 * np.pi, len(y))
    rows, columns = np.mgrid[:SIZE, :SIZE]
    along = np.cos(angles)[:, None, None] * rows + np.sin(angles)[:, None, None] * columns
    x = np.sin(1.2 * along + phases[:, None, None]) + 0.7 * rng.standard_normal((len(y), SIZE, SIZE))
    x = x[..., None].astype(np.float32)
    return x[:EXAMPLES], y[:EXAMPLES], x[EXAMPLES:], y[EXAMPLES:]


def initial(seed, blocks, width=8):
    """One convolution, residual blocks of two each, and a dense layer."""
    keys = iter(jax.random.split(jax.random.key(seed), 2 * blocks + 2))
    weights = {"first": jax.random.normal(next(keys), (3, 3, 1, width)) * np.sqrt(2 / 9)}
    for block in range(blocks):
        for part in "ab":
            shape = (3, 3, width, width)
            weights[f"block{block}{part}"] = jax.random.normal(next(keys), shape) * np.sqrt(1 / (9 * width))
    return weights | {"dense": jax.random.normal(next(keys), (width, CLASSES)) * 0.1, "bias": jnp.zeros(CLASSES)}


def convolved(x, weights):
    """Convolve as one matrix product over patches: XLA's own convolution is slow in a loop on a CPU."""
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = [
        padded[:, row : row + x.shape[1], column : column + x.shape[2]] for row in range(3) for column in range(3)
    ]
    return jnp.concatenate(patches, axis=-1) @ weights.reshape(-1, weights.shape[-1])


@jax.jit
def loss(weights, x, y):
    x = jax.nn.relu(convolved(x, weights["first"]))
    for block in range((len(weights) - 3) // 2):
        inner = jax.nn.relu(convolved(x, weights[f"block{block}a"]))
        x = jax.nn.relu(x + convolved(inner, weights[f"block{block}b"]))
    scores = x.mean((1, 2)) @ weights["dense"] + weights["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()


@jax.jit
def one_pass(weights, moments, batches, rate):
    """Take the steps of Adam; the rate is an argument, so that trials share what is compiled."""

    def update(state, batch):
        weights, moments = state
        changes, moments = ADAM.update(jax.grad(loss)(weights, *batch), moments)
        changes = jax.tree.map(lambda change: -rate * change, changes)
        return (optax.apply_updates(weights, changes), moments), None

    return jax.lax.scan(update, (weights, moments), batches)[0]


def train(trial):
    """Train with parameters `blocks`, `rate` and `cut` (the last step before a tenth of the rate is left)."""
    x, y, held_x, held_y = examples()
    weights = initial(trial.seed, trial.params["blocks"])
    moments = ADAM.init(weights)
    state = trial.restore()
    if state is not None:
        weights, moments = jax.tree.unflatten(jax.tree.structure((weights, moments)), state["leaves"])
    for step in trial.steps():
        rows = np.random.default_rng([trial.seed, step]).permutation(EXAMPLES).reshape(-1, BATCH)
        rate = trial.params["rate"] * (1.0 if step <= trial.params["cut"] else 0.1)
        weights, moments = one_pass(weights, moments, (x[rows], y[rows]), rate)
        trial.report(step, loss=loss(weights, held_x, held_y))
        trial.save({"leaves": jax.tree.leaves((weights, moments))})
