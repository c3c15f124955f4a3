"""Compiled stochastic gradient descent over the ratings of a block: one thread, no GIL, one order of work.

The kernels are compiled when this module is imported, unless numba's cache has them; that is while a partition is
prepared (`kernel_cache.load`), so that nothing is compiled during a clock. The number of factors is not a compile-time
constant: LLVM would unroll the inner products completely and leave them scalar (measured: twice the time at rank 32).
"""

from typing import Any

import numpy as np
from numba import float32, float64, int32, njit, types


def _read(dtype: Any, ndim: int) -> Any:
    return types.Array(dtype, ndim, "C", readonly=True)  # accepts writeable arrays as well


_SIGNATURE = float64(
    _read(int32, 1),
    _read(int32, 1),
    _read(float32, 1),
    float32[:, ::1],
    float32[:, ::1],
    float32,
    float32,
)
_ONE, _TWO = np.float32(1), np.float32(2)


@njit([_SIGNATURE], cache=True, nogil=True, fastmath=True, error_model="numpy")
def adaptive_steps(users: Any, items: Any, values: Any, left: Any, right: Any, step: Any, penalty: Any) -> float:
    """Visit the ratings in order, with a separate step for each row; return the sum of the squared errors.

    Parameters
    ----------
    users, items : int32 of shape (ratings,)
        Rows of `left` and `right`; none may be out of range.
    values : float32 of shape (ratings,)
    left, right : float32 of shape (rows, rank + 1)
        Changed in place. The last column is 1 plus the sum of the mean squared gradients of the row's factors.
    step : float32
        Step of a row whose last column is 1; in general it is divided by the root of that column.
    penalty : float32
        Weight of the squared factors, at each visit.
    """
    rank = left.shape[1] - 1
    share = _ONE / np.float32(rank)
    loss = 0.0
    for n in range(len(values)):
        p, q = left[np.uint64(users[n])], right[np.uint64(items[n])]
        inner, pp, qq = np.float32(0), np.float32(0), np.float32(0)
        for k in range(rank):
            inner += p[k] * q[k]
            pp += p[k] * p[k]
            qq += q[k] * q[k]
        error = values[n] - inner
        loss += error * error
        step_p, step_q = step / np.sqrt(p[rank]), step / np.sqrt(q[rank])
        # |error q - penalty p|² from the three products above, rather than in a third loop over the factors.
        both = _TWO * error * penalty * inner
        p[rank] += share * (error * error * qq - both + penalty * penalty * pp)
        q[rank] += share * (error * error * pp - both + penalty * penalty * qq)
        keep_p, keep_q = _ONE - step_p * penalty, _ONE - step_q * penalty
        move_p, move_q = step_p * error, step_q * error
        for k in range(rank):
            old = p[k]
            p[k] = keep_p * old + move_p * q[k]
            q[k] = keep_q * q[k] + move_q * old
    return loss


@njit([_SIGNATURE], cache=True, nogil=True, fastmath=True, error_model="numpy")
def plain_steps(users: Any, items: Any, values: Any, left: Any, right: Any, step: Any, penalty: Any) -> float:
    """Visit the ratings in order with one step for all rows; otherwise as `adaptive_steps`. The last column stays."""
    rank = left.shape[1] - 1
    keep = _ONE - step * penalty
    loss = 0.0
    for n in range(len(values)):
        p, q = left[np.uint64(users[n])], right[np.uint64(items[n])]
        inner = np.float32(0)
        for k in range(rank):
            inner += p[k] * q[k]
        error = values[n] - inner
        loss += error * error
        move = step * error
        for k in range(rank):
            old = p[k]
            p[k] = keep * old + move * q[k]
            q[k] = keep * q[k] + move * old
    return loss
