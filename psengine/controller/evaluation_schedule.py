"""Evaluation of the model on held-out data during the training: at which clocks, and the results.

The model is evaluated every `clocks_to_evaluate` clocks. The servers mark the model of such a clock when it becomes
common (arrays are never written again, so this copies nothing); from there it is gathered and evaluated beside the
training, in the controller's process. The training does not wait, and under bulk synchrony the figures of a clock do
not depend on losses of nodes.

At most two evaluations are under way. One that is due before is skipped: the application takes longer to evaluate than
the training takes for that number of clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.instructions import Evaluate, ShardOwner
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.telemetry.event_log import MOST

MOST_UNDER_WAY = 2


class Evaluating:
    """State of one job's evaluations."""

    def __init__(self) -> None:
        #: (clock, figures by name), in order of clock; of more than `MOST` every second one of the older half goes.
        self.points: list[tuple[int, dict[str, float | None]]] = []
        #: Groups that the driver wants evaluated.
        self._requested: set[int] = set()
        #: {group: generation of the shards that are evaluated}.
        self._under_way: dict[int, int] = {}

    @property
    def under_way(self) -> bool:
        """Whether an evaluation is under way."""
        return bool(self._under_way)

    def request(self, group: int) -> None:
        """Have the model of a group evaluated that is about to be committed."""
        self._requested.add(group)

    def instructions(
        self,
        config: JobConfig,
        committed: Mapping[int, tuple[int, bool]],
        last_group: int | None,
        owners: tuple[ShardOwner, ...],
        generation: int,
        states: Callable[[int], tuple[StateRef, ...]] = lambda clock: (),
    ) -> list[Evaluate]:
        """Return the evaluations that are due.

        Parameters
        ----------
        committed : mapping
            {group that has just been committed: the number of complete clocks, and whether it completed the last one}.
        last_group : int or None
            The last group of the job: the model is evaluated there in any case.
        states : callable
            Returns the states of partitions at a group.
        """
        every, evaluations = config.clocks_to_evaluate, []
        for group, (clock, is_end) in committed.items():
            due = group in self._requested or (every is not None and is_end and clock % every == 0)
            self._requested.discard(group)
            if not due or group == last_group or len(self._under_way) >= MOST_UNDER_WAY:
                continue
            self._under_way[group] = generation
            evaluations.append(Evaluate(config, group, clock, owners, generation, states(group)))
        return evaluations

    def take(self, group: int, generation: int, metrics: Mapping[str, float | None] | None, clock: int) -> None:
        """Note the figures of a group, at `clock`, evaluated by request in `generation`; None if it failed.

        They are ignored if the job has rolled back behind that group, and used if it was not affected.
        """
        if self._under_way.get(group) != generation:
            return
        del self._under_way[group]
        if metrics is not None:
            points = sorted([*(point for point in self.points if point[0] != clock), (clock, dict(metrics))])
            older = MOST // 2 if len(points) > MOST else 0
            self.points = [*points[:older:2], *points[older:]]

    def roll_back(self, group: int, clock: int) -> None:
        """Forget the groups after `group` and the clocks after `clock`: they are repeated."""
        self.points = [point for point in self.points if point[0] <= clock]
        self._under_way = {evaluated: gen for evaluated, gen in self._under_way.items() if evaluated <= group}

    def go_on(self, points: Sequence[Sequence[Any]]) -> None:
        """Take over the figures of a job that continues."""
        self.points = [(int(clock), dict(metrics)) for clock, metrics in points]

    def series(self, clock: int | None = None) -> list[list[Any]]:
        """Return [[clock, figures], ...] of the clocks up to `clock`, or of all; JSON-able."""
        return [[evaluated, dict(metrics)] for evaluated, metrics in self.points if clock is None or evaluated <= clock]
