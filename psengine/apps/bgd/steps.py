"""Step rules: how far to go along a direction."""

from __future__ import annotations

from dataclasses import dataclass

from psengine.apps.bgd.line_search import LineSearch


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
