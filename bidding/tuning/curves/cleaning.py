"""Reported values as an ascending curve of finite losses, or the reason why it cannot be predicted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Fewer finite values than this predict nothing: a stage has four coefficients.
MIN_POINTS = 5
#: A best value that is more than so many of its ranges from a curve says nothing of it: a constant was added.
FAR = 10.0
#: Then the best value is taken to be this share of the range beyond the best of the curve.
BEYOND = 0.05
#: A curve whose newest values are all infinite or no numbers has diverged.
DIVERGED_AFTER = 5


@dataclass(frozen=True, slots=True)
class LossCurve:
    """A curve of finite losses: values of which the smallest is the best, and 0 the best possible.

    Attributes
    ----------
    steps : (n,) ascending, each once.
    losses : (n,) how far the metric is from the best value, in units of `unit`.
    sign, bound, unit : `bound` is the best value, see `best_value`; the metric is ``bound + sign * loss * unit``;
        `unit` is the power of two that makes the largest about 1, so that no sum of squares overflows or vanishes.
    has_bound : whether no loss below 0 is possible; not where the spread implied the best value.
    cannot : why the curve cannot be predicted; empty: it can.
    diverged : whether the newest values are all infinite or no numbers.
    """

    steps: NDArray[np.float64]
    losses: NDArray[np.float64]
    sign: float
    bound: float
    unit: float
    has_bound: bool = True
    cannot: str = ""
    diverged: bool = False

    def metric(self, loss: float) -> float:
        """Return the metric of a loss."""
        return self.bound + self.sign * loss * self.unit


def loss_curve(steps: ArrayLike, values: ArrayLike, direction: str, bound: float | None = None) -> LossCurve:
    """Return the finite part of a curve as losses.

    Parameters
    ----------
    steps : (n,) in any order; of a step that comes twice the last value counts.
    values : (n,) the metric at each step; NaN and infinities are left out.
    direction : ``minimize`` or ``maximize``.
    bound : the best value of a maximised metric; None: 1.

    Raises
    ------
    ValueError
        If the two have different lengths, or the direction is neither.
    """
    at = np.asarray(steps, dtype=float).ravel()
    metric = np.asarray(values, dtype=float).ravel()
    if at.shape != metric.shape:
        raise ValueError(f"{len(at)} steps and {len(metric)} values")
    if direction not in ("minimize", "maximize"):
        raise ValueError(f"direction {direction!r} is neither minimize nor maximize")
    # The newest of a step's values is the first of it in the reversed arrays.
    at, first = np.unique(at[::-1], return_index=True)
    metric = metric[::-1][first]
    sign = 1.0 if direction == "minimize" else -1.0
    finite = np.isfinite(metric) & np.isfinite(at)
    best, has_bound = best_value(metric[finite], direction, bound)
    largest = np.abs(metric[finite]).max(initial=abs(best))
    unit = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1)) if largest else 1.0
    losses = (metric[finite] / unit - best / unit) * sign
    newest = finite[-DIVERGED_AFTER:]
    cannot, diverged = "", False
    if len(newest) == DIVERGED_AFTER and not newest.any():
        cannot, diverged = f"its last {DIVERGED_AFTER} values are infinite or no numbers", True
    elif len(losses) < MIN_POINTS:
        cannot = f"it has {len(losses)} finite values, and a prediction needs {MIN_POINTS}"
    return LossCurve(at[finite], losses, sign, best, unit, has_bound, cannot, diverged)


def best_value(values: NDArray[np.float64], direction: str, bound: float | None = None) -> tuple[float, bool]:
    """Return the value that losses are measured from, and whether it is the best possible one.

    It is 0 of a minimised metric, and of a maximised one its bound. Where the curve is beyond that value, or farther
    from it than `FAR` of its ranges, a share of the range beyond the curve's best value takes its place. So what is
    computed of a metric with a large constant, of a negative one and of one that crosses 0 follows from its spread.

    Parameters
    ----------
    values : (n,) finite values of the metric.
    """
    best = 0.0 if direction == "minimize" else 1.0 if bound is None else float(bound)
    if not len(values):
        return best, True
    lowest, highest = float(values.min()), float(values.max())
    spread = highest - lowest
    distance = lowest - best if direction == "minimize" else best - highest
    if not np.isfinite(spread) or 0 <= distance <= FAR * spread:
        return best, True
    beyond = lowest - BEYOND * spread if direction == "minimize" else highest + BEYOND * spread
    most = float(np.finfo(float).max)
    return min(max(beyond, -most), most), False
