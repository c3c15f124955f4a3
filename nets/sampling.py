"""Which steps a group of tasks has, and which examples of its partition a worker takes in which step.

A worker walks through its partition in a permutation, epoch after epoch, in a new one each time. What it takes in a
step follows from the step's number alone, so a repeated task takes the same examples, on whatever node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Calendar:
    """The steps of a job's groups and clocks.

    A clock is `local_steps` steps. A group of tasks is a clock, but in the first clocks: there each warm step is a
    group, and so is the rest of the clock in which the warm steps end.

    Attributes
    ----------
    local_steps : int
        Steps of a clock (H).
    warm_steps : int
        The first so many steps are a group each: its workers push gradients, and take the step with their mean at the
        beginning of the next group.
    """

    local_steps: int
    warm_steps: int = 0

    def steps(self, group: int) -> range:
        """Return the numbers of the steps of a group, counted from 0; groups are counted from 1."""
        if self.is_warm(group):
            return range(group - 1, group)
        clock = self.warm_steps // self.local_steps + group - self.warm_steps
        return range(max(self.warm_steps, (clock - 1) * self.local_steps), clock * self.local_steps)

    def clocks(self, groups: int) -> int:
        """Return how many clocks are complete with so many groups."""
        return self.steps(groups).stop // self.local_steps if groups else 0

    def groups(self, clocks: int) -> int:
        """Return how many groups complete so many clocks."""
        steps = clocks * self.local_steps
        return steps if steps <= self.warm_steps else self.warm_steps + clocks - self.warm_steps // self.local_steps

    def is_warm(self, group: int) -> bool:
        """Return whether the workers of a group push gradients."""
        return group <= self.warm_steps

    def begins_with_gradients(self, group: int) -> bool:
        """Return whether a group begins with the step whose gradients the one before it has pushed."""
        return 1 < group <= self.warm_steps + 1


class Walk:
    """The order of the examples of one partition.

    Parameters
    ----------
    n_examples : int
        How many the partition has.
    seed, partition : int
        With the number of the epoch they seed its permutation.
    """

    def __init__(self, n_examples: int, seed: int, partition: int) -> None:
        self._n, self._seed, self._partition = n_examples, seed, partition
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def take(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the examples at the places from `first` on in the walk through all epochs."""
        taken = np.empty(count, np.int64)
        done = 0
        while done < count:
            epoch, at = divmod(first + done, self._n)
            here = min(count - done, self._n - at)
            taken[done : done + here] = self._permutation(epoch)[at : at + here]
            done += here
        return taken

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        if epoch != self._epoch:
            rng = np.random.default_rng([self._seed, self._partition, epoch])
            self._epoch, self._order = epoch, rng.permutation(self._n)
        return self._order
