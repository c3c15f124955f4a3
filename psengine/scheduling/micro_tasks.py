"""The book of micro-tasks: what is done, what runs where under which attempt.

Invariants: a partition has at most one micro-task under way; clocks of a partition complete in order; only the latest
attempt of a micro-task can complete it, so each effect counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psengine.protocol.instructions import TaskKey
from psengine.scheduling.ssp_driver import common_clock


@dataclass(frozen=True)
class Running:
    """A micro-task under way."""

    clock: int
    attempt: int
    node: str


class MicroTaskBook:
    """State of all micro-tasks of a job with `n_partitions` partitions, all of which have completed `clock`."""

    def __init__(self, n_partitions: int, clock: int = 0) -> None:
        #: last completed clock of each partition
        self.done: list[int] = [clock] * n_partitions
        #: {partition: its micro-task under way}, in order of dispatch
        self.running: dict[int, Running] = {}
        #: {partition: (clock, attempt) of its latest dispatch}
        self._latest: dict[int, tuple[int, int]] = {}
        #: the highest clock that each partition was ever dispatched in
        self._reached: dict[int, int] = {}
        #: attempts are counted from here: after all have gone back, those of before are the lower ones
        self._base = 0
        self._highest = 0
        #: {partition: the attempt that completed its last clock}; not known at the beginning
        self._completed_by: dict[int, int] = {}
        self.completions = clock * n_partitions
        #: dispatches beyond the first of a micro-task
        self.repeated = 0
        #: completions that came from a superseded attempt, or twice
        self.ignored = 0

    @property
    def common(self) -> int:
        """The latest clock that every partition has completed."""
        return common_clock(self.done)

    @property
    def completed_by(self) -> int:
        """The attempt under which every partition completed the common clock.

        0 where that is not known, where they were several, and where one has completed a later clock already.
        """
        attempts = set(self._completed_by.values())
        if len(self._completed_by) < len(self.done) or len(attempts) > 1 or max(self.done) > self.common:
            return 0
        return attempts.pop()

    @property
    def last_dispatched(self) -> int:
        """The highest clock that any partition was dispatched in."""
        return max(self._reached.values(), default=0)

    @property
    def last_begun(self) -> int:
        """The highest clock of which something is done or under way; of before all went back, nothing is."""
        return max(self.begun(partition) for partition in range(len(self.done)))

    def begun(self, partition: int) -> int:
        """Return the last clock of a partition that is done or under way."""
        running = self.running.get(partition)
        return self.done[partition] if running is None else running.clock

    def start(self, partition: int, clock: int, node: str) -> int:
        """Note a dispatch and return its attempt number (1 for the first, as long as nobody has gone back)."""
        if partition in self.running or clock != self.done[partition] + 1:
            raise ValueError(f"partition {partition} cannot start clock {clock}")
        last_clock, last_attempt = self._latest.get(partition, (0, 0))
        attempt = last_attempt + 1 if last_clock == clock else self._base + 1
        self._latest[partition] = (clock, attempt)
        self._highest = max(attempt, self._highest)
        self.running[partition] = Running(clock, attempt, node)
        self.repeated += clock <= self._reached.get(partition, 0)
        self._reached[partition] = max(clock, self._reached.get(partition, 0))
        return attempt

    def key(self, partition: int, clock: int, node: str) -> TaskKey:
        """Note a dispatch (`start`) and return what the node is told of it."""
        after = self._completed_by.get(partition, 0)
        return TaskKey(partition, self.start(partition, clock, node), after)

    def complete(self, partition: int, clock: int, attempt: int) -> bool:
        """Note a completion; return False when it is late, repeated or superseded and changes nothing."""
        running = self.running.get(partition)
        if running is None or (running.clock, running.attempt) != (clock, attempt):
            self.ignored += 1
            return False
        del self.running[partition]
        self.done[partition] = clock
        self._completed_by[partition] = attempt
        self.completions += 1
        return True

    def roll_back(self, clock: int) -> None:
        """Go to the common clock `clock`: what comes after it is to be done, or done again, under higher attempts.

        It is an earlier one, but for a checkpoint of a clock that all have gone back from since.
        """
        self._base = self._highest
        self._latest.clear()
        self._completed_by.clear()
        self.running.clear()
        self.done = [clock] * len(self.done)
        self.completions = clock * len(self.done)

    def give_up(self, node: str) -> list[int]:
        """Forget what runs on `node`, so that it is dispatched anew under a higher attempt; return the partitions."""
        lost = [partition for partition, running in self.running.items() if running.node == node]
        for partition in lost:
            del self.running[partition]
        return lost

    def forget(self, partition: int, clock: int, attempt: int) -> bool:
        """Forget one micro-task under way that failed; return False when it is not the latest attempt."""
        running = self.running.get(partition)
        if running is None or (running.clock, running.attempt) != (clock, attempt):
            return False
        del self.running[partition]
        return True

    def running_on(self, node: str) -> int:
        """Return how many micro-tasks are under way on `node`."""
        return sum(running.node == node for running in self.running.values())


def lost_effects(folded: Sequence[int], clocks: int, n_partitions: int) -> int:
    """Return how many effects are missing from the model: the most that any shard lacks of clocks * n_partitions.

    Parameters
    ----------
    folded : sequence of int
        Distinct effects that each shard has folded.
    """
    return max((clocks * n_partitions - count for count in folded), default=0)
