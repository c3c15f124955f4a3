"""Bounded nonlinear least-squares fit of one stage, with the uncertainty of what it predicts."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: A longer curve is reduced to the means of this many bins.
BINS = 40
#: Starts are the best of these curvatures, in units of one over the stage's length and its square.
_SLOPES = np.concatenate([[0.0], np.geomspace(0.3, 3e3, 9)])
_CURVATURES = np.concatenate([[0.0], np.geomspace(0.3, 1e5, 9)])
_STARTS = np.stack([grid.ravel() for grid in np.meshgrid(_CURVATURES, _SLOPES, indexing="ij")], axis=1)[1:]
#: In scaled units the first loss of a stage is at most 1 above its floor: 1 / a2 beyond this is not a curve.
_LEAST_A2 = 1e-3
_EVALUATIONS = 40
#: The weight of a value falls by a factor of e with each such share of its stage's length before the newest value:
#: what comes depends most on the newest values, and few curves follow the formula from their first step on.
RECENCY = 0.2
#: Share of the predicted fall by which the formula itself may miss: it covers the recorded curves of `proteus bench`.
MISFIT = 0.3


@dataclass(frozen=True, slots=True)
class StageFit:
    """A fitted stage: ``m(k) = 1 / (a0 u^2 + a1 u + a2) + a3`` with ``u = k - start``.

    Attributes
    ----------
    start : the step at which the stage begins.
    a : (4,) coefficients, none negative (a3 may be where losses are); a2 is infinite for a constant stage.
    noise : standard deviation of a reported loss around the curve.
    """

    start: float
    a: NDArray[np.float64]
    noise: float
    _scaled: NDArray[np.float64]
    _covariance: NDArray[np.float64]
    _length: float
    _height: float

    def prediction(self, step: float) -> tuple[float, float]:
        """Return the loss at a step of the stage, and the standard deviation of a report of it.

        The deviation has three parts: the noise of a report; that of the coefficients, by their covariance, which is
        linear in them and so bounded by the fall that is predicted; and a share of this fall, since no curve follows
        the formula exactly.
        """
        with np.errstate(all="ignore"):
            newest, loss = self._loss(self._length), self._loss(step - self.start)
            gradient = _jacobian(np.array([(step - self.start) / self._length]), self._scaled)[0] * self._height
            variance = max(float(gradient @ self._covariance @ gradient), 0.0)
            fall = abs(newest - loss)
            of_coefficients = min(math.sqrt(variance), max(fall, self.noise))
        return loss, math.hypot(self.noise, of_coefficients, MISFIT * fall)

    def _loss(self, u: float) -> float:
        return float(1 / (self.a[0] * u * u + self.a[1] * u + self.a[2]) + self.a[3])


def fit_stage(steps: NDArray[np.float64], losses: NDArray[np.float64], *, has_bound: bool = True) -> StageFit | None:
    """Fit one stage; None: no coefficients fit it (they are not finite).

    Parameters
    ----------
    steps : (n,) ascending, n >= 5.
    losses : (n,) finite.
    has_bound : whether no loss below 0 is possible.

    Source: SpotTune, III-C, formulas (4)-(6).
    Differs: a step counts from the start of its stage (a superset of the curves that count from 0, as a >= 0, and of
    use in a later stage, which no curve that falls from step 0 on fits). Newer values weigh more, as in SLAQ. Losses
    below 0, or without a bound, free a3. A long stage is reduced to the means of bins, each with the weight of its
    values.
    """
    with np.errstate(all="ignore"):
        lowest, height = float(losses.min()), float(np.ptp(losses))
        length = float(steps[-1] - steps[0])
        if height <= 1e-12 * np.abs(losses).max() or not np.isfinite(height / length):
            return _constant(steps, losses)
        u, y, counts = _binned((steps - steps[0]) / length, (losses - lowest) / height)
        weights = counts * np.exp((u - 1) / RECENCY)
        floor = -np.inf if lowest < 0 or not has_bound else -lowest / height
        x = _fitted(u, y, np.sqrt(weights), floor)
        if x is None:
            return None
        return _stage(steps, losses, x, (u, counts, weights), floor, length, lowest, height)


def _constant(steps: NDArray[np.float64], losses: NDArray[np.float64]) -> StageFit:
    a = np.array([0.0, 0.0, np.inf, losses.mean()])
    return StageFit(float(steps[0]), a, float(losses.std()), a, np.zeros((4, 4)), 1.0, 1.0)


def _binned(
    u: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Means of bins that grow with the step, since a curve is steepest at its start, and the sizes of the bins."""
    n = len(u)
    if n <= BINS:
        return u, y, np.ones(n)
    bounds = np.unique(np.concatenate([np.arange(10), np.geomspace(10, n, BINS - 9).astype(int)]))[:-1]
    counts = np.diff(np.append(bounds, n)).astype(float)
    return np.add.reduceat(u, bounds) / counts, np.add.reduceat(y, bounds) / counts, counts


def _fitted(
    u: NDArray[np.float64], y: NDArray[np.float64], roots: NDArray[np.float64], floor: float
) -> NDArray[np.float64] | None:
    from scipy.optimize import least_squares  # most processes that import this module fit no curve

    lower = np.array([0.0, 0.0, _LEAST_A2, floor])
    start = np.maximum(_start(u, y, roots**2, floor), lower)

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(roots * (1 / (x[0] * u * u + x[1] * u + x[2]) + x[3] - y))

    def jacobian(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return roots[:, None] * _jacobian(u, x)

    # Of scipy's two bounded methods, dogbox takes about half the time here.
    found = least_squares(
        residuals, start, jacobian, (lower, np.inf), "dogbox", ftol=1e-6, xtol=1e-6, max_nfev=_EVALUATIONS
    ).x
    return np.asarray(found) if np.isfinite(found).all() else None


def _jacobian(u: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    falling = -1 / (x[0] * u * u + x[1] * u + x[2]) ** 2
    return np.asarray(np.column_stack([falling * u * u, falling * u, falling, np.ones_like(u)]))


def _start(
    u: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64], floor: float
) -> NDArray[np.float64]:
    """Return the best of a grid of shapes ``1 / (1 + b1 u + b0 u^2)``: a regression gives height and floor of each."""
    shapes = 1 / (1 + _STARTS @ np.stack([u * u, u]))
    total = weights.sum()
    mean, level = shapes @ weights / total, y @ weights / total
    centred = shapes - mean[:, None]
    height = np.clip((centred * (weights * (y - level))).sum(1) / (centred**2 @ weights), 1e-3, 1 / _LEAST_A2)
    a3 = np.maximum(level - height * mean, floor)
    errors = (height[:, None] * shapes + a3[:, None] - y) ** 2 @ weights
    best = int(np.argmin(errors))
    return np.array([*(_STARTS[best] / height[best]), 1 / height[best], a3[best]])


def _stage(
    steps: NDArray[np.float64],
    losses: NDArray[np.float64],
    x: NDArray[np.float64],
    binned: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    floor: float,
    length: float,
    lowest: float,
    height: float,
) -> StageFit | None:
    a = np.array([x[0] / (height * length * length), x[1] / (height * length), x[2] / height, x[3] * height + lowest])
    if not np.isfinite(a).all():
        return None
    free = np.array([x[0] > 1e-9, x[1] > 1e-9, x[2] > 1.001 * _LEAST_A2, x[3] > floor + 1e-9])
    u = (steps - steps[0]) / length
    recency = np.exp((u - 1) / RECENCY)
    residuals = 1 / (x[0] * u * u + x[1] * u + x[2]) + x[3] - (losses - lowest) / height
    values = recency.sum() ** 2 / (recency**2).sum()  # as many values of equal weight would be as uncertain
    noise = float(np.sqrt(residuals**2 @ recency / recency.sum() * values / max(values - free.sum(), 1.0)))
    return StageFit(float(steps[0]), a, noise * height, x, _covariance(x, free, *binned) * noise**2, length, height)


def _covariance(
    x: NDArray[np.float64],
    free: NDArray[np.bool_],
    u: NDArray[np.float64],
    counts: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the covariance of the coefficients for noise of variance 1; 0 where a coefficient lies at its bound.

    Weights are no inverse variances here: that of a bin's mean is one over its count.
    """
    slopes = _jacobian(u, x)[:, free]
    bread = np.linalg.pinv(slopes.T @ (slopes * weights[:, None]), rcond=1e-12, hermitian=True)
    covariance = np.zeros((4, 4))
    covariance[np.ix_(free, free)] = bread @ (slopes.T @ (slopes * (weights**2 / counts)[:, None])) @ bread
    return covariance
