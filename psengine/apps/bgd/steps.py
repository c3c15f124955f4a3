"""Step rules, and the line search under the Armijo-Wolfe conditions."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

#: Sufficient decrease: this share of what the slope at 0 promises (Armijo).
_DECREASE = 1e-4
_ROUNDING = 2.0**-53
#: Most trial steps of a search.
_TRIALS = 40


class LineSearch:
    """Search of a step t with f(t) <= f(0) + 1e-4 t f'(0) and f'(t) >= curvature f'(0), for a function bounded below.

    Parameters
    ----------
    value, slope : float
        f(0) and f'(0) < 0.
    first : float
        First trial.
    curvature : float
        Share of the slope at 0 that may remain (Wolfe).

    Attributes
    ----------
    trial : float
        The step at which value and slope are wanted next.
    accepted : float or None
        The step that was found.
    failed : bool
        Whether the search ended without one: rounding hides the decrease.

    Notes
    -----
    Source: Nocedal and Wright, Numerical Optimization (2006), 3.1 and 3.5; where the trials are used up, the best step
    with the sufficient decrease is accepted.
    """

    def __init__(self, value: float, slope: float, first: float, curvature: float = 0.9) -> None:
        self.value, self.slope, self.curvature = value, slope, curvature
        self.trial = first
        self.accepted: float | None = None
        self.failed = not slope < 0.0 or self._is_hidden(first)
        self._low = (0.0, value, slope)  # the best step with the sufficient decrease, with value and slope
        self._high: tuple[float, float, float] | None = None  # beyond a step that the conditions allow
        self._trials = 0

    def receive(self, value: float, slope: float) -> None:
        """Take the value and the slope at `trial`."""
        point = (self.trial, value, slope)
        self._trials += 1
        decreased = value <= self.value + _DECREASE * self.trial * self.slope and value < self.value
        if not (decreased and isfinite(slope)):
            self._high = point
        elif slope < self.curvature * self.slope:
            self._low = point
        else:
            self.accepted = self.trial
            return
        self.trial = 4.0 * self.trial if self._high is None else _between(self._low, self._high)
        is_narrow = self._high is not None and self._high[0] <= self._low[0] * (1 + 1e-12)
        if self._trials == _TRIALS or is_narrow or self._is_hidden(self.trial):
            self.accepted = self._low[0] or None
            self.failed = self.accepted is None

    def _is_hidden(self, step: float) -> bool:
        """Return whether rounding hides all that the slope promises up to a step."""
        return -self.slope * step <= _ROUNDING * abs(self.value)


def _between(low: tuple[float, float, float], high: tuple[float, float, float]) -> float:
    """Return the minimum of the cubic through both ends, kept off them by a tenth of the interval."""
    (a, value_a, slope_a), (b, value_b, slope_b) = low, high
    width = b - a
    if not (isfinite(value_b) and isfinite(slope_b)):
        return a + 0.1 * width
    d = slope_a + slope_b - 3.0 * (value_b - value_a) / width
    root = d * d - slope_a * slope_b
    if root < 0.0:
        return a + 0.5 * width
    denominator = slope_b - slope_a + 2.0 * sqrt(root)
    share = 1.0 - (slope_b + sqrt(root) - d) / denominator if denominator > 0.0 else 0.5
    return a + width * min(max(share, 0.1), 0.9)


@dataclass(frozen=True)
class FixedStep:
    """The step of round r is step / (1 + decay * r): constant without decay (Algorithm 1)."""

    step: float
    decay: float = 0.0

    def at(self, round_number: int) -> float:
        """Return the step of a round, counted from 0."""
        return self.step / (1.0 + self.decay * round_number)


@dataclass(frozen=True)
class SearchedStep:
    """The step is searched for under the Armijo-Wolfe conditions.

    Attributes
    ----------
    curvature : float
        Share of the slope that may remain, see `LineSearch`.
    """

    curvature: float = 0.9

    def search(self, value: float, slope: float, *, before: float | None, is_scaled: bool) -> LineSearch:
        """Return the search along a direction whose slope is negative.

        Parameters
        ----------
        before : the step of the round before, which is tried first; None in the first round.
        is_scaled : whether 1 is tried first instead.
        """
        if is_scaled:
            first = 1.0
        elif before is None:
            first = min(1.0, max(abs(value), 1e-12) / -slope)
        else:
            first = before
        return LineSearch(value, slope, first, self.curvature)


StepRule = FixedStep | SearchedStep
