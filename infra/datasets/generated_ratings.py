"""Generated ratings: a factorisation of low rank, noise, and users and items of very different activity."""

import numpy as np
from numpy.typing import NDArray

#: Standard deviations of the noise and of the product of the factors, in points.
_NOISE, _SIGNAL = 0.4, 0.8
_MEAN, _LEAST, _MOST = 3.5, 0.5, 5.0
_CHUNK = 1 << 18


def generated_ratings(
    n_users: int, n_items: int, n_ratings: int, seed: int = 0, rank: int = 6
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return users, items and ratings in half points from 0.5 to 5, in a random order, each pair once.

    Parameters
    ----------
    n_ratings : number of draws; repeated pairs are dropped.
    """
    rng = np.random.default_rng(seed)
    who = rng.permutation(n_users)[(n_users * rng.random(n_ratings) ** 1.8).astype(np.int64)]
    what = rng.permutation(n_items)[(n_items * rng.random(n_ratings) ** 2.2).astype(np.int64)]
    drawn = np.sort(who * n_items + what)  # np.unique would make the function three to four times slower
    pairs = rng.permutation(drawn[np.diff(drawn, prepend=-1) != 0])
    users, items = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    left = rng.standard_normal((n_users, rank), np.float32)
    right = rng.standard_normal((n_items, rank), np.float32) * np.float32(_SIGNAL / np.sqrt(rank))
    values = rng.standard_normal(len(pairs), np.float32) * np.float32(_NOISE) + np.float32(_MEAN)
    for low in range(0, len(pairs), _CHUNK):
        some = slice(low, low + _CHUNK)
        values[some] += np.einsum("nk,nk->n", left[users[some]], right[items[some]])
    return users, items, np.clip(np.rint(2 * values) / 2, _LEAST, _MOST)
