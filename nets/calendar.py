"""Which steps belong to which clock: some clocks of one step at first, then `local_steps` in each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Calendar:
    """The steps of a job's clocks.

    Attributes
    ----------
    local_steps : int
        Steps of a clock (H).
    warm_steps : int
        The first so many steps are a clock each.
    """

    local_steps: int
    warm_steps: int = 0

    def steps(self, clock: int) -> range:
        """Return the numbers of the steps of a clock, counted from 0; clocks are counted from 1."""
        if clock <= self.warm_steps:
            return range(clock - 1, clock)
        first = self.warm_steps + (clock - 1 - self.warm_steps) * self.local_steps
        return range(first, first + self.local_steps)
