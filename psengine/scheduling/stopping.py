"""Stopping rule: the last clock of a job, by its target, convergence, a stop, its time limit, or a hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan

from proteus_spot.psengine.config import JobError, Until


class StoppingRule:
    """Limits of one job, in clocks; a hold may be requested before there is a job."""

    def __init__(self) -> None:
        #: The job's number of clocks; None if only time ends it.
        self.target: int | None = None
        #: Reason of a requested stop; None without one.
        self.stop_reason: str | None = None
        #: When the job has converged, by its losses.
        self.until = Until()
        #: Why the job has converged, as the driver or `until` says; "" if it has not.
        self.criterion = ""
        self._converged_at: int | None = None
        self._passes_made_at: int | None = None
        self._ends_at: int | None = None
        self._held_at: int | None = None
        #: Number of complete clocks, and the group that completed the last one; None where clocks are groups.
        self._complete: tuple[int, int] | None = None

    @property
    def ending(self) -> bool:
        """Whether the job ends before its target, because of a stop or its time limit."""
        return self._ends_at is not None

    @property
    def last_clock(self) -> int | None:
        """The clock after which none is begun; None if only time ends the job."""
        return min(
            (
                clock
                for clock in (self.target, self._passes_made_at, self._converged_at, self._ends_at)
                if clock is not None
            ),
            default=None,
        )

    @property
    def limit(self) -> int | None:
        """The clock after which none is begun at present: the last one, or an earlier one at which the job is held."""
        return self.last_clock if self.ending else _earlier(self.last_clock, self._held_after)  # a hold delays no end

    @property
    def _held_after(self) -> int | None:
        if self._held_at is None or self._complete is None:
            return self._held_at
        clock, group = self._complete
        return group if clock >= self._held_at else None

    def complete(self, clock: int, group: int) -> None:
        """Note the number of complete clocks of a driver that counts them, and the group that completed the last."""
        self._complete = clock, group

    def end_at(self, clock: int) -> None:
        """Set the last clock of the job."""
        self._ends_at = clock

    def converge_at(self, clock: int, reason: str) -> None:
        """Set the last clock of a job that has converged; the first decision stays."""
        if self._converged_at is None:
            self._converged_at, self.criterion = clock, reason

    def passes_made_at(self, clock: int) -> None:
        """Set the last clock of a job that has made its passes with that clock; the first decision stays."""
        if self._passes_made_at is None:
            self._passes_made_at = clock

    def roll_back(self) -> None:
        """Forget that the job has converged: it has rolled back, maybe behind that clock, and decides again."""
        self._converged_at, self.criterion, self._passes_made_at = None, "", None

    def reached(
        self,
        losses: Sequence[tuple[int, float]],
        passes: float | None = None,
        metrics: Sequence[tuple[int, Mapping[str, float | None]]] = (),
    ) -> str:
        """Return why the job has converged with these (clock, loss) of all clocks; "" if it has not.

        Parameters
        ----------
        passes : float or None
            What the job has made with them, if that is known.
        metrics : sequence of (clock, figures by name)
            The evaluations so far; a figure that is not finite is None.

        Raises
        ------
        JobError
            If the rule names a figure that the evaluations do not have.
        """
        if not losses:
            return ""
        (clock, loss), until = losses[-1], self.until
        which = f"{clock}" if passes is None or passes == clock else f"{clock} (pass {passes:.4g})"
        if until.loss is not None and loss <= until.loss:
            return f"converged: the loss of clock {which} is {loss:.6g}, at most {until.loss:.6g}"
        if until.no_improvement is not None and len(losses) > until.no_improvement:
            before = [value for _, value in losses[: -until.no_improvement] if not isnan(value)]
            recent = [value for _, value in losses[-until.no_improvement :]]
            if not any(value < min(before, default=inf) for value in recent):
                return f"converged: no lower loss in the {until.no_improvement} clocks up to {which}"
        return self._bound_reached(metrics) if until.metric else ""

    def _bound_reached(self, metrics: Sequence[tuple[int, Mapping[str, float | None]]]) -> str:
        name, at_least, bound = self.until.metric, self.until.at_least, self.until.bound
        for clock, figures in metrics:
            if name not in figures:
                raise JobError(
                    f"until names {name!r}, and the application's evaluate returns {', '.join(sorted(figures))}: "
                    "use one of these, or end the job otherwise"
                )
            value = figures[name]
            if value is not None and (value >= bound if at_least else value <= bound):
                limit = f"at {'least' if at_least else 'most'} {bound:.6g}"
                return f"converged: {name} of clock {clock} is {value:.6g}, {limit}"
        return ""

    def pause_at(self, clock: int | None) -> None:
        """Hold the job after `clock`; None lets it continue."""
        self._held_at = clock


def _earlier(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
