"""Training of the networks by Optax's AdamW under JAX, as one compiled loop.

The loop is compiled once for each network and shape. Markets have equally many examples, so a fit of many markets
compiles it once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.evictions.neural.networks import LSTM_LAYERS, lstm_start, lstm_step
from proteus_spot.bidding.evictions.predictors.minute_features import Float32s

#: Logit of each example from (weights, inputs by name).
Network = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]


@dataclass(frozen=True)
class TrainingPlan:
    """Size of the training: passes over the examples, examples a step, and the highest learning rate."""

    epochs: int = 12
    batch: int = 256
    rate: float = 5e-3


def scan(weights: Mapping[str, Any], records: Any) -> Any:
    """Return the LSTM's last output under JAX, shape (n, WIDTH), of records of shape (n, records, inputs)."""

    def step(state: Any, record: Any) -> Any:
        return lstm_step(jnp, weights, state, record), None

    state, _ = jax.lax.scan(step, lstm_start(jnp, records.shape[:1]), jnp.swapaxes(records, 0, 1))
    return state[2 * LSTM_LAYERS - 2]


def train(
    network: Network,
    weights: Mapping[str, Float32s],
    inputs: Mapping[str, Float32s],
    labels: Float32s,
    importance: Float32s,
    plan: TrainingPlan,
    seed: int,
) -> tuple[dict[str, Float32s], Float64s]:
    """Return the trained weights, and the mean loss of each epoch.

    Parameters
    ----------
    network : a module's function; the compiled loop is kept by it.
    inputs : arrays whose first axis are the examples.
    labels : 0 or 1, shape (n,).
    importance : factor of each example's cross-entropy, shape (n,).
    plan : examples beyond a multiple of the batch are left out of an epoch, others in each.
    """
    rng = np.random.default_rng(seed)
    batch = min(plan.batch, len(labels))
    per_epoch = len(labels) // batch
    order = np.stack([rng.permutation(len(labels))[: per_epoch * batch] for _ in range(plan.epochs)])
    batches = order.reshape(plan.epochs * per_epoch, batch).astype(np.int32)
    found, losses = _loop(network, plan.rate, len(batches))(dict(weights), dict(inputs), labels, importance, batches)
    return {name: np.asarray(value) for name, value in found.items()}, np.asarray(losses, dtype=np.float64).reshape(
        plan.epochs, per_epoch
    ).mean(axis=1)


@lru_cache(maxsize=8)
def _loop(network: Network, rate: float, steps: int) -> Any:
    """Return the compiled loop over batches of examples."""
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_decay_schedule(rate, steps), weight_decay=1e-3),
    )

    def loss(weights: Any, inputs: Any, labels: Any, importance: Any) -> Any:
        errors = optax.sigmoid_binary_cross_entropy(network(weights, inputs), labels)
        return jnp.mean(errors * importance)

    def step(data: Any, state: Any, rows: Any) -> Any:
        weights, moments = state
        inputs, labels, importance = data
        chosen = {name: values[rows] for name, values in inputs.items()}
        value, slope = jax.value_and_grad(loss)(weights, chosen, labels[rows], importance[rows])
        updates, moments = optimiser.update(slope, moments, weights)
        return (optax.apply_updates(weights, updates), moments), value

    @jax.jit
    def run(weights: Any, inputs: Any, labels: Any, importance: Any, batches: Any) -> Any:
        data = (inputs, labels, importance)
        (trained, _), losses = jax.lax.scan(partial(step, data), (weights, optimiser.init(weights)), batches)
        return trained, losses

    return run
