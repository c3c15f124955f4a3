"""Rotation of blocks of the model among the partitions: no two tasks of a group have the same block.

With P partitions there are P blocks; partition e has block (e + g) mod P in group g, so that P groups are a pass.

Source: Litz (2017), section 2.6 (the schedule of STRADS); Gemulla et al. (KDD 2011).
"""

from __future__ import annotations

from typing import Any

from proteus_spot.psengine.drivers.interface import Dispatcher, Driver, Task

#: Number of groups, beyond the next, that are dispatched before a group is committed: nodes get a task while they still
#: work on the one before.
AHEAD = 1


class Rotation(Driver):
    """Dispatches a task of every partition in each group; its argument is the number of its block.

    A task waits for the one that had its block before, not for the whole group before. A subclass may send more with
    `args`, and name other `writers`.

    Notes
    -----
    Tasks read "rows" with `after`: what a task reads has to be of its block, or to be covered by `writers`.
    """

    def __init__(self) -> None:
        self._partitions = 0
        self._last_group = 0

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        """Dispatch the first groups; the seed is not used."""
        self._partitions = partitions
        self._dispatch_until(to, 1 + AHEAD)

    def committed(self, to: Dispatcher, group: int) -> None:
        """Dispatch the next group."""
        self._dispatch_until(to, group + 1 + AHEAD)

    def passes(self, group: int, examples: int) -> float:
        """Return the number of passes that `group` groups are: in one each partition has each block."""
        return group / self._partitions

    def args(self, group: int, block: int) -> Any:
        """Return the arguments of the task that has `block` in `group`."""
        return block

    def writers(self, group: int, partition: int) -> tuple[int, ...]:
        """Return the partitions that wrote the rows last which the task of `partition` in `group` reads."""
        return ((partition + 1) % self._partitions,)

    def snapshot(self) -> Any:
        """Return the number of partitions and the last dispatched group."""
        return self._partitions, self._last_group

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._partitions, self._last_group = state

    def _dispatch_until(self, to: Dispatcher, group: int) -> None:
        while self._last_group < group:
            self._last_group += 1
            for partition in range(self._partitions):
                block = (partition + self._last_group) % self._partitions
                args, after = self.args(self._last_group, block), self.writers(self._last_group, partition)
                to.dispatch(Task(partition, self._last_group, args, "rows", after))
            to.seal(self._last_group)
