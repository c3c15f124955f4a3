"""Generated labelled examples, similar to hand-written digits: correlated inputs, overlapping classes."""

import numpy as np
from numpy.typing import NDArray

#: Number of directions in which the inputs vary, and the exponent by which their widths fall.
_DIRECTIONS, _FALL = 200, 0.7
#: Distance of the classes, and share of wrong labels.
_APART, _WRONG = 0.6, 0.05


def generated_examples(
    n: int, n_inputs: int, n_classes: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return inputs (n, n_inputs) float32 and labels (n,) from 0."""
    rng = np.random.default_rng(seed)
    widths = ((1 + np.arange(_DIRECTIONS)) ** -_FALL).astype(np.float32)
    directions = rng.standard_normal((_DIRECTIONS, n_inputs)).astype(np.float32) * np.float32(8 / np.sqrt(n_inputs))
    centres = np.float32(_APART) * rng.standard_normal((n_classes, _DIRECTIONS)).astype(np.float32)
    y = rng.integers(0, n_classes, n)
    x = np.empty((n, n_inputs), np.float32)
    for low in range(0, n, 4096):
        block = x[low : low + 4096]
        latent = (centres[y[low : low + 4096]] + rng.standard_normal((len(block), _DIRECTIONS), np.float32)) * widths
        np.matmul(latent, directions, out=block)
        block += np.float32(0.05) * rng.standard_normal(block.shape, np.float32)
    wrong = rng.random(n) < _WRONG
    y[wrong] = rng.integers(0, n_classes, int(wrong.sum()))
    return x, y
