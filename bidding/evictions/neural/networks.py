"""The networks: an LSTM of several layers, and dense layers, over NumPy or JAX arrays alike.

Training runs them under JAX, prediction under NumPy: a flow that asks for one probability needs no compiler. The
functions take the array module (`xp`) where an operator does not suffice.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from proteus_spot.bidding.evictions.predictors.minute_features import FEATURES, Float32s

#: Width of a layer of the LSTM and of the dense part, and numbers of layers.
WIDTH, LSTM_LAYERS, DENSE_LAYERS = 16, 3, 3
#: Inputs of a record, and of a record with the limit.
N_FEATURES = len(FEATURES)
N_WITH_LIMIT = N_FEATURES + 1

Shapes = Mapping[str, tuple[int, ...]]


def lstm_shapes(n_inputs: int) -> Shapes:
    """Return the shapes of the weights of an LSTM whose first layer has `n_inputs` inputs."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(LSTM_LAYERS):
        rows = n_inputs if layer == 0 else WIDTH
        shapes[f"lstm{layer}_x"] = (rows, 4 * WIDTH)
        shapes[f"lstm{layer}_h"] = (WIDTH, 4 * WIDTH)
        shapes[f"lstm{layer}_b"] = (4 * WIDTH,)
    return shapes


def dense_shapes(name: str, sizes: tuple[int, ...]) -> Shapes:
    """Return the shapes of the weights of dense layers between `sizes`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        shapes[f"{name}{layer}_w"] = (rows, columns)
        shapes[f"{name}{layer}_b"] = (columns,)
    return shapes


def initial_weights(shapes: Shapes, rng: np.random.Generator) -> dict[str, Float32s]:
    """Return random weights: uniform by fan-in and fan-out (Glorot), biases 0, those of the forget gates 1."""
    weights = {}
    for name, shape in shapes.items():
        if len(shape) == 2:
            bound = np.sqrt(6 / sum(shape))
            weights[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
        else:
            weights[name] = np.zeros(shape, dtype=np.float32)
            if name.startswith("lstm"):
                weights[name][WIDTH : 2 * WIDTH] = 1
    return weights


def stacked(networks: Sequence[Mapping[str, Float32s]]) -> dict[str, Float32s]:
    """Return the weights of several networks for one pass, whose arrays have an axis of networks before their own."""
    found = {}
    for name in networks[0]:
        weights = np.stack([network[name] for network in networks])
        found[name] = weights[:, None, :] if weights.ndim == 2 else weights  # biases hold for all examples
    return found


def lstm_start(xp: Any, examples: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the state of an LSTM before the first record: (h, c) of each layer, each of shape (*examples, WIDTH)."""
    zeros = xp.zeros((*examples, WIDTH), dtype=xp.float32)
    return (zeros,) * (2 * LSTM_LAYERS)


def lstm_step(xp: Any, weights: Mapping[str, Any], state: tuple[Any, ...], record: Any) -> tuple[Any, ...]:
    """Return the state after one record of each example, shape (n, inputs)."""
    after: list[Any] = []
    inputs = record
    for layer in range(LSTM_LAYERS):
        hidden, cell = state[2 * layer : 2 * layer + 2]
        gates = inputs @ weights[f"lstm{layer}_x"] + hidden @ weights[f"lstm{layer}_h"] + weights[f"lstm{layer}_b"]
        opened = _sigmoid(xp, gates)
        entering, kept, leaving = (opened[..., WIDTH * gate : WIDTH * (gate + 1)] for gate in (0, 1, 3))
        cell = kept * cell + entering * xp.tanh(gates[..., 2 * WIDTH : 3 * WIDTH])
        inputs = leaving * xp.tanh(cell)
        after += [inputs, cell]
    return tuple(after)


def dense(xp: Any, weights: Mapping[str, Any], name: str, inputs: Any, layers: int) -> Any:
    """Return the outputs of dense layers with rectifiers, shape (n, columns of the last)."""
    for layer in range(layers):
        inputs = xp.maximum(inputs @ weights[f"{name}{layer}_w"] + weights[f"{name}{layer}_b"], 0)
    return inputs


def out(weights: Mapping[str, Any], inputs: Any) -> Any:
    """Return the logit of each example, shape (n,), by the last layer `out0`."""
    return (inputs @ weights["out0_w"] + weights["out0_b"])[..., 0]


def embed(weights: Mapping[str, Float32s], records: Float32s) -> Float32s:
    """Return the LSTM's last output by NumPy, shape (…, WIDTH), of records of shape (…, records, inputs)."""
    state = lstm_start(np, records.shape[:-2])
    for step in range(records.shape[-2]):
        state = lstm_step(np, weights, state, records[..., step, :])
    found: Float32s = state[2 * LSTM_LAYERS - 2]
    return found


def _sigmoid(xp: Any, values: Any) -> Any:
    return 0.5 * (1 + xp.tanh(0.5 * values))
