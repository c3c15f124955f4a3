"""Compiled estimation of the topic mixtures of new documents under given topics. One thread, no GIL.

It is compiled when this module is imported, unless numba's cache has it; that takes some seconds.
"""

from typing import Any

import numpy as np
from numba import float32, float64, int32, int64, njit, types, void

_ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})


def _read(dtype: Any, ndim: int) -> Any:
    return types.Array(dtype, ndim, "C", readonly=True)  # accepts writeable arrays as well


@njit(
    [void(_read(int32, 1), _read(int64, 1), _read(float32, 2), float64, int64, float32[:, ::1])],
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath=set(_ANY_ORDER),
)
def fold_in(words: Any, offsets: Any, phi: Any, alpha: Any, rounds: Any, theta: Any) -> None:
    """Set the topic mixture of each document, `theta` (documents, K), given the topics' words, `phi` (words, K).

    Each of the `rounds` distributes every token over the topics by the present mixture: theta_k is proportional to
    alpha plus the tokens of topic k.
    """
    n_topics = phi.shape[1]
    mixture, dealt = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    for d in range(len(offsets) - 1):
        size = offsets[d + 1] - offsets[d]
        mixture[:] = np.float32(1.0 / n_topics)
        for _ in range(rounds):
            dealt[:] = 0.0
            for token in range(offsets[d], offsets[d + 1]):
                word = words[token]
                total = np.float32(0.0)
                for k in range(n_topics):
                    total += mixture[k] * phi[word, k]
                scale = np.float32(1.0) / total
                for k in range(n_topics):
                    dealt[k] += mixture[k] * phi[word, k] * scale
            for k in range(n_topics):
                mixture[k] = (dealt[k] + np.float32(alpha)) / np.float32(size + alpha * n_topics)
        theta[d] = mixture
