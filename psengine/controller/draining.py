"""Which nodes that are to leave work until when, and which may leave. Decides, and moves nothing.

Source: Proteus (EuroSys 2017), 3.3 (the eviction warning is used to end well).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from functools import partial

from proteus_spot.psengine.membership.event_batch import EventBatch
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.events import DrainRequested, NoticeReceived
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.telemetry.training_progress import TrainingProgress
from proteus_spot.psengine.tiers.tier_manager import Tiers

#: Seconds that are always kept in reserve: for messages, and for clocks that differ.
FLOOR_S = 2.0
_TIMES = 3.0
#: The same for nodes that have not begun the last clock of nodes whose time ends with theirs.
_LAST_TIMES = 1.0
#: Seconds for which further notices are awaited, because nodes poll separately; and the maximum share of the time left.
_TOGETHER_S, _TOGETHER_SHARE = 5.0, 0.05


class Departures:
    """The notices that were received, and the time that they leave.

    Attributes
    ----------
    notices : EventBatch
        Those that are not answered yet.
    """

    def __init__(self, members: Membership, tiers: Tiers, progress: TrainingProgress) -> None:
        self._members, self._tiers, self._progress = members, tiers, progress
        self.notices = EventBatch(together_s=_TOGETHER_S)

    def told(self, event: NoticeReceived) -> None:
        """Take a notice; it is ignored if the node is not present."""
        if not self._members.notice(event.node, event.seconds_left, event.about):
            return
        self._members.drain((event.node,), event.now_s + event.seconds_left, works_on=True)
        # A node with an earlier notice may have less time left, and waits for further notices, too.
        ends_s = [node.until_s for node in self._going if node.until_s is not None]
        least_s = min(ends_s, default=event.now_s) - event.now_s
        self.notices.add(event.now_s, wait_s=_TOGETHER_SHARE * min(event.seconds_left, max(0.0, least_s)))

    def end_work(self, tasks: TaskTable, now_s: float) -> bool:
        """Give leaving nodes no new work if it is time; return whether there are any.

        No node ends while further notices are awaited: its partitions would go to nodes that receive a notice next.
        """
        if self.notices.size or not self._members.index.by_name("leaving"):
            return False
        is_time = partial(self._is_time, now_s, self._hand_over_s())
        return self._members.end_work(is_time, partial(is_time, last=True), tasks.begun)

    def may_begin(self, now_s: float) -> Mapping[str, NodeRecord]:
        """Return the nodes that may be given work: leaving ones as long as they have time for it."""
        ready = self._members.index.by_name("ready")
        leaving = self._members.index.by_name("leaving")
        if not leaving:
            return ready  # with each report: nothing is copied
        is_time = partial(self._is_time, now_s, self._hand_over_s(), last=True)
        return ChainMap({name: node for name, node in leaving.items() if not is_time(node)}, ready)

    def ending(self, now_s: float) -> list[str]:
        """Return the leaving nodes that are given nothing beyond what they run; others work as before their notice."""
        hand_over_s = self._hand_over_s()
        return [node.name for node in self._members.in_state("leaving") if self._is_time(now_s, hand_over_s, node)]

    def completing(self, now_s: float) -> list[str]:
        """Return the nodes whose work is ended by a notice and that have time for all that they were sent."""
        hand_over_s = self._hand_over_s()
        ended = [node for node in self._members.in_state("draining") if node.noticed]
        return [node.name for node in ended if not self._is_time(now_s, hand_over_s, node, last=True)]

    def drain(self, event: DrainRequested, tasks: TaskTable | None) -> None:
        """Let nodes finish what they run, and begin nothing more; unknown and gone ones are left out."""
        self._members.drain(event.nodes, event.now_s + event.deadline_s)
        if self.notices.size:  # they cannot wait longer than that for further notices
            self.notices.add(event.now_s, wait_s=_TOGETHER_SHARE * max(0.0, event.deadline_s))
        self.note_last(tasks)

    def refused(self, names: Collection[str]) -> list[str]:
        """Return which of these nodes may not be drained.

        They are unknown, or serve or replicate shards that no reliable node but these could hold.
        """
        needed = all(node.name in names for node in self._members.able_to_serve)
        nodes, holds = self._members.nodes, self._tiers.holds
        return [n for n in names if n not in nodes or (needed and nodes[n].tier == "reliable" and holds(n))]

    def note_last(self, tasks: TaskTable | None) -> None:
        """Note the last clock of draining nodes, if it is not known yet: that of their running tasks."""
        for node in self._members.in_state("draining"):
            if node.last_clock is None and tasks is not None:
                owned = self._members.placement.owned_by(node.name)
                node.last_clock = max((tasks.begun(partition) for partition in owned), default=None)

    def serving_on(self, tasks: TaskTable, now_s: float) -> frozenset[str]:
        """Return the leaving nodes whose shards stay where they are.

        They stay until the nodes' last clock is common: before that, all leaving nodes would read from the few that
        remain, and the updates of the clock under way would move with its shards, block by block.
        """
        took_s = self._tiers.backups.took_s

        def stays(node: NodeRecord) -> bool:
            if node.until_s is not None and now_s >= hands_over_by_s(node.until_s, self._clock_s, took_s):
                return False
            return node.state == "leaving" or tasks.common < (node.last_clock or 0)

        return frozenset(node.name for node in self._going if stays(node))

    @property
    def _clock_s(self) -> float:
        return self._progress.longest_recent_s

    def _hand_over_s(self) -> float:
        """Return the time that is left for hand-overs.

        Nodes without shards reserve it too, as long as other leaving nodes have some: a node that worked on alone would
        read from the few that remain.
        """
        return self._tiers.backups.took_s if any(self._tiers.holds(node.name) for node in self._going) else 0.0

    @property
    def _going(self) -> list[NodeRecord]:
        return self._members.in_state("leaving", "draining")

    def _is_time(self, now_s: float, hand_over_s: float, node: NodeRecord, last: bool = False) -> bool:
        """Return whether a node that is leaving begins nothing more; `last`: see `notices.work_until_s`."""
        by_s = node.until_s
        return by_s is None or now_s >= work_until_s(by_s, self._clock_s, hand_over_s, last)


def work_until_s(until_s: float, clock_s: float, hand_over_s: float, last: bool = False) -> float:
    """Return the moment from which on a node begins no further clock; it may have passed already.

    Parameters
    ----------
    until_s : float
        When its notice runs out.
    clock_s : float
        How long the longest of the last clocks took, hence a node's work in one of them.
    hand_over_s : float
        Time to hand over the shards of the leaving nodes; 0 if they serve none.
    last : bool
        Return the moment from which on it begins nothing at all.
    """
    times = _LAST_TIMES if last else _TIMES
    return until_s - (FLOOR_S + times * clock_s + times * hand_over_s)


def hands_over_by_s(until_s: float, clock_s: float, hand_over_s: float) -> float:
    """Return the moment from which on a node does not keep what it serves, whatever is under way.

    Parameters
    ----------
    until_s : float
        When its notice runs out.
    clock_s : float
        As in `work_until_s`. A node that reads whole tables transfers more in a clock than in a hand-over.
    hand_over_s : float
        Time to hand over the shards; 0 if it is not known.
    """
    return until_s - (FLOOR_S + max(_TIMES * hand_over_s, clock_s))
