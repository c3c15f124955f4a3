"""When the model is held against the held-out data while the training goes on, and what came of it, by clock. Pure.

Every so many clocks. The servers keep a mark of the model of such a clock when it becomes common (arrays are never written
again, so that costs nobody a copy); from there it is gathered and evaluated beside the training, in the controller's process.
So nobody waits, and under bulk synchrony the figures of a clock are the same whatever befell the nodes.

At most two are under way. When a further one is due before, it is left out: the application takes longer to evaluate than
the training takes for that many clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psengine.config import JobConfig
from psengine.protocol.instructions import Evaluate, ShardOwner

MOST_UNDER_WAY = 2


class Evaluating:
    """State of one job's evaluations."""

    def __init__(self) -> None:
        #: (clock, figures by name), in order of clock
        self.points: list[tuple[int, dict[str, float | None]]] = []
        #: clocks that were left out, or could not be evaluated
        self.left_out: list[int] = []
        #: the generation of the shards that each clock is evaluated of
        self._under_way: dict[int, int] = {}

    @property
    def under_way(self) -> bool:
        """Whether one is."""
        return bool(self._under_way)

    def orders(
        self,
        config: JobConfig,
        clocks: Sequence[int],
        last_clock: int | None,
        owners: tuple[ShardOwner, ...],
        generation: int,
    ) -> list[Evaluate]:
        """Return what is to be evaluated of `clocks`, which have just become common; the last clock is, with the model."""
        every, out = config.evaluate_every, []
        for clock in clocks:
            if every is None or clock % every or clock == last_clock:
                continue
            if len(self._under_way) >= MOST_UNDER_WAY:
                self.left_out.append(clock)
                continue
            self._under_way[clock] = generation
            out.append(Evaluate(config, clock, owners, generation))
        return out

    def take(self, clock: int, generation: int, metrics: Mapping[str, float | None] | None) -> None:
        """Note what came of the evaluation of a clock as ordered in `generation`; None where nothing did.

        Of a clock that was gone back from it says nothing any more; of one before that, it does.
        """
        if self._under_way.get(clock) != generation:
            return
        del self._under_way[clock]
        if metrics is None:
            self.left_out.append(clock)
        else:
            self.points = sorted([*(point for point in self.points if point[0] != clock), (clock, dict(metrics))])

    def roll_back(self, clock: int) -> None:
        """Forget the clocks after `clock`: they are done again."""
        self.points = [point for point in self.points if point[0] <= clock]
        self.left_out = [of for of in self.left_out if of <= clock]
        self._under_way = {of: ordered for of, ordered in self._under_way.items() if of <= clock}

    def go_on(self, points: Sequence[Sequence[Any]]) -> None:
        """Take over the figures of a job that goes on."""
        self.points = [(int(clock), dict(metrics)) for clock, metrics in points]

    def series(self, clock: int | None = None) -> list[list[Any]]:
        """Return [clock, figures] each, those of the clocks up to `clock`; JSON-able."""
        return [[of, dict(metrics)] for of, metrics in self.points if clock is None or of <= clock]
