"""Progress of a training: losses, durations and work by tier, clock by clock.

Where the driver counts the clocks, a clock is made of several groups, of which the last completes it. Elsewhere a clock
is a group. Rollbacks and checkpoints are by group.

Of a long job the clocks are thinned behind which it never rolls back. At most `MOST_CLOCKS` of them, the newest ones,
have their seconds and their stage listed, and of older losses every second one is dropped again and again. Totals count
all clocks.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.events import TaskStats

_RECENT_CLOCKS = 5
#: Number of failed batches of one clock on one node from which on they are reported.
_TROUBLE = 3
#: Maximum number of clocks up to the newest checkpoint of which each is listed.
MOST_CLOCKS = 4000
#: Figures of a job that has done nothing.
NO_FIGURES: Mapping[str, Any] = MappingProxyType(
    {"losses": (), "kernel_seconds": 0.0, "micro_tasks_done": {"reliable": 0, "transient": 0}, "seconds": 0.0}
)


def losses_of(summary: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return [(clock, loss)] of a saved summary; a loss that was not finite is null there, and NaN here."""
    return [(int(clock), math.nan if loss is None else float(loss)) for clock, loss in summary["losses"]]


class TrainingProgress:
    """Figures of one job. Add only completions that count, each once."""

    def __init__(self) -> None:
        #: (clock, mean loss over all examples) of common clocks.
        self.losses: list[tuple[int, float]] = []
        #: The group that completed each of these clocks.
        self._groups: list[int] = []
        #: Whether each group is a clock.
        self.clocks_are_groups = True
        #: Seconds from the end of the previous clock to that of each common clock; the last ones.
        self.clock_seconds: list[float] = []
        #: Stage in which each of these clocks was completed.
        self.clock_stages: list[int] = []
        #: Number of earlier clocks, and their seconds.
        self.clocks_left_out = 0
        self.seconds_left_out = 0.0
        #: Seconds in kernels: per clock those of the node that had the most; the rest of a clock is overhead.
        self.kernel_seconds = 0.0
        #: Completions of committed groups; those of later ones are not in a checkpoint, and would count twice after it.
        self.done_by_tier: dict[str, int] = {"reliable": 0, "transient": 0}
        #: Number of examples that the tasks of common clocks have processed.
        self.examples = 0
        #: Seconds of the longest task; None before any was done.
        self.longest_s: float | None = None
        #: {node: (tasks, examples, kernel seconds)} that it has done in this process, without its first report: some of
        #: its time went into compiling. What is rolled back took its time, too.
        self.work_by_node: dict[str, tuple[int, int, float]] = {}
        #: Start of the training (earlier by the seconds of the restored checkpoint); None before.
        self.started_s: float | None = None
        #: Why the clock under way does not end, if batches fail repeatedly; else "".
        self.trouble = ""
        self._failures = Counter[str]()
        self._seconds_before = 0.0
        self._last_common_s = 0.0
        #: {group: (kernel seconds, completions by tier, loss, examples)} of groups that were committed in this process.
        self._by_group: dict[int, tuple[float, Counter[str], float | None, int]] = {}
        self._stats: dict[int, dict[int, tuple[float, int]]] = {}
        self._tiers: dict[int, Counter[str]] = {}
        self._kernels: dict[int, dict[str, float]] = {}

    def begin(self, now_s: float) -> None:
        """Note that the first clock begins, or the first one after a checkpoint; later calls change nothing."""
        if self.started_s is None:
            self._last_common_s = now_s
            self.started_s = now_s - self._seconds_before

    def go_on(self, summary: Mapping[str, Any], group: int) -> None:
        """Take over the figures of a checkpoint of `group`, as if its clocks had run in this process."""
        self._by_group.clear()
        self.losses = losses_of(summary)
        self._groups = [min(clock, group) for clock, _ in self.losses]  # it never rolls back behind `group`
        self.clocks_left_out = int(summary.get("clocks_left_out", 0))
        self.seconds_left_out = float(summary.get("seconds_left_out", 0.0))
        self.clock_seconds = [float(seconds) for seconds in summary.get("seconds_by_clock", [])]
        self.clock_stages = [int(stage) for stage in summary.get("stage_by_clock", [])]
        self.kernel_seconds = float(summary["kernel_seconds"])
        self.done_by_tier = {str(tier): int(count) for tier, count in summary["micro_tasks_done"].items()}
        self.examples = int(summary.get("examples_done", 0))
        self._seconds_before = float(summary["seconds"])
        if self.started_s is not None:
            self._last_common_s = self.started_s + self._seconds_before

    def clock_at(self, group: int) -> int:
        """Return the number of clocks that were complete when `group` was committed."""
        return self.complete_at(group)[0]

    def complete_at(self, group: int) -> tuple[int, bool]:
        """Return the number of clocks that were complete with `group`, and whether it completed the last of them."""
        if self.clocks_are_groups:
            return group, True
        number = bisect_right(self._groups, group)
        return (self.losses[number - 1][0], self._groups[number - 1] == group) if number else (0, False)

    @property
    def last_complete(self) -> tuple[int, int]:
        """The number of complete clocks, and the group that completed the last one."""
        return (self.losses[-1][0], self._groups[-1]) if self.losses else (0, 0)

    def seconds(self, now_s: float) -> float:
        """Return the seconds since the training began; 0 before."""
        return 0.0 if self.started_s is None else now_s - self.started_s

    @property
    def longest_recent_s(self) -> float:
        """Seconds of the longest of the recent clocks; 0 before there are any."""
        return max(self.clock_seconds[-_RECENT_CLOCKS:], default=0.0)

    def add(self, node: NodeRecord, clock: int, done: Sequence[TaskStats]) -> None:
        """Note tasks of one clock that `node` completed."""
        tasks, examples, kernel_s = self.work_by_node.get(node.name, (-len(done), 0, 0.0))
        if tasks >= 0:
            examples += sum(stats.examples for stats in done)
            kernel_s += sum(stats.kernel_s for stats in done)
        self.work_by_node[node.name] = (tasks + len(done), examples, kernel_s)
        for stats in done:
            self.longest_s = max(stats.kernel_s, self.longest_s or 0.0)
            self._stats.setdefault(clock, {})[stats.partition] = (stats.loss_sum, stats.examples)
            self._tiers.setdefault(clock, Counter())[node.tier] += 1
            kernels = self._kernels.setdefault(clock, {})
            kernels[node.name] = kernels.get(node.name, 0.0) + stats.kernel_s / node.threads

    def failed(self, node: str, clock: int, error: str) -> int:
        """Note that a batch failed; repeated failures on a node are reported in `trouble`.

        Return their number since a clock was committed, or the job rolled back.
        """
        self._failures[node] += 1
        if self._failures[node] >= _TROUBLE:
            self.trouble = f"clock {clock} does not end: {self._failures[node]} batches have failed on {node}: {error}"
        return self._failures[node]

    def kernel_s(self, group: int) -> float:
        """Return the kernel seconds of the node that had the most in a group that was just committed."""
        return self._by_group[group][0]

    def _forget_failures(self) -> None:
        self.trouble = ""
        self._failures.clear()

    def close(self, group: int, clock: int | None, now_s: float, stage: int) -> None:
        """Note that `group` is committed, in `stage`, and has completed `clock`; None: that clock is not complete."""
        self._forget_failures()
        parts = self._stats.pop(group, {})  # none: all tasks of the group were withdrawn before they were sent
        examples = sum(parts[p][1] for p in sorted(parts))
        loss = sum(parts[p][0] for p in sorted(parts)) / examples if examples else None
        tiers, kernel_s = self._tiers.pop(group, Counter()), max(self._kernels.pop(group, {}).values(), default=0.0)
        for tier, count in tiers.items():
            self.done_by_tier[tier] += count
        self.kernel_seconds += kernel_s
        self.examples += examples
        self._by_group[group] = kernel_s, tiers, loss, examples
        if clock is None:
            return
        # Of a clock that looked at some examples twice the loss is the last one.
        numbers = [number for number in self._by_group if self.last_complete[1] < number <= group]
        found = (self._by_group[number][2] for number in sorted(numbers, reverse=True))
        before = self.losses[-1][1] if self.losses else 0.0  # of a clock that looked at no example
        self.losses.append((clock, next((loss for loss in found if loss is not None), before)))
        self._groups.append(group)
        self.clock_seconds.append(now_s - self._last_common_s)
        self.clock_stages.append(stage)
        self._last_common_s = now_s

    def thin(self, group: int) -> None:
        """Thin the clocks up to `group`, behind which the job never rolls back."""
        for done in [done for done in self._by_group if done <= min(group, self.last_complete[1])]:
            del self._by_group[done]
        while (old := bisect_right(self._groups, group)) > MOST_CLOCKS:
            self.losses[: old // 2] = self.losses[: old // 2 : 2]
            self._groups[: old // 2] = self._groups[: old // 2 : 2]
        left_out = len(self.clock_seconds) - self._after(group) - MOST_CLOCKS
        if left_out > 0:
            self.clocks_left_out += left_out
            self.seconds_left_out += sum(self.clock_seconds[:left_out])
            del self.clock_seconds[:left_out], self.clock_stages[:left_out]

    def roll_back(self, group: int) -> None:
        """Forget the groups after `group`: they are repeated. Their seconds are added to those of the next clock."""
        later = self._after(group)
        self._forget_failures()
        for repeated in [done for done in self._by_group if done > group]:
            kernel_s, tiers, _, examples = self._by_group.pop(repeated)
            self.kernel_seconds -= kernel_s
            self.examples -= examples
            for tier, count in tiers.items():
                self.done_by_tier[tier] -= count
        self._stats.clear()
        self._tiers.clear()
        self._kernels.clear()
        if not later:
            return
        self._last_common_s -= sum(self.clock_seconds[-later:])
        del self.losses[-later:], self._groups[-later:], self.clock_seconds[-later:], self.clock_stages[-later:]

    def _after(self, group: int) -> int:
        """Return the number of clocks that were completed after `group`."""
        return len(self._groups) - bisect_right(self._groups, group)

    def figures(self, group: int, now_s: float) -> dict[str, Any]:
        """Return the figures of the job at `group`, the latest committed one or one shortly before; JSON-able."""
        later = self._after(group)
        keep = len(self.losses) - later
        of_later = [figures for done, figures in self._by_group.items() if done > group]
        seconds = self.seconds(now_s)
        if later:
            seconds = self.seconds(self._last_common_s) - sum(self.clock_seconds[-later:])
        return {
            "seconds": seconds,
            "kernel_seconds": self.kernel_seconds - sum(kernel_s for kernel_s, *_ in of_later),
            "examples_done": self.examples - sum(examples for *_, examples in of_later),
            "losses": [list(pair) for pair in self.losses[:keep]],
            "seconds_by_clock": self.clock_seconds[: len(self.clock_seconds) - later],
            "stage_by_clock": self.clock_stages[: len(self.clock_stages) - later],
            **(
                {"clocks_left_out": self.clocks_left_out, "seconds_left_out": self.seconds_left_out}
                if self.clocks_left_out
                else {}
            ),
            "micro_tasks_done": {
                tier: count - sum(tiers[tier] for _, tiers, *_ in of_later) for tier, count in self.done_by_tier.items()
            },
        }
