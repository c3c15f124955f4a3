"""Who of those who were told to go works until when, and who may go at all. Pure: decides, and moves nothing.

Source: Proteus (EuroSys 2017), 3.3 (the eviction warning is used to end well).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from functools import partial

from psengine.membership.event_batch import EventBatch
from psengine.membership.membership import Membership
from psengine.membership.node_record import NodeRecord
from psengine.protocol.events import NoticeReceived
from psengine.scheduling.micro_tasks import MicroTaskTable
from psengine.telemetry.training_progress import TrainingProgress
from psengine.tiers.tier_manager import Tiers

#: seconds that are always left: for the way of the orders and the reports, and a clock that is not ours
FLOOR_S = 2.0
_TIMES = 3.0
#: The same for those who have yet to begin the last clock of those whose time came with theirs.
_LAST_TIMES = 1.0
#: Seconds for which further notices are waited for, as long as nodes look for theirs apart; and of what is left, so
#: much at most.
_TOGETHER_S, _TOGETHER_SHARE = 5.0, 0.05


class Leaving:
    """The notices that have come, and what time they leave.

    Attributes
    ----------
    notices : EventBatch
        Those that were not answered yet.
    """

    def __init__(self, members: Membership, tiers: Tiers, progress: TrainingProgress) -> None:
        self._members, self._tiers, self._progress = members, tiers, progress
        self.notices = EventBatch(together_s=_TOGETHER_S)

    def told(self, event: NoticeReceived) -> bool:
        """Take a notice; return whether it is news."""
        if not self._members.notice(event.node, event.seconds_left, event.about):
            return False
        self._members.drain((event.node,), event.now_s + event.seconds_left, works_on=True)
        # Whoever was told before has less time left than the last one, maybe, and waits for the others to be told, too.
        ends_s = [node.until_s for node in self._going if node.until_s is not None]
        least_s = min(ends_s, default=event.now_s) - event.now_s
        self.notices.add(event.now_s, wait_s=_TOGETHER_SHARE * min(event.seconds_left, max(0.0, least_s)))
        return True

    def end_work(self, book: MicroTaskTable, now_s: float) -> bool:
        """Give those who are leaving nothing new to do, where it is time for that; return whether there are any.

        Nobody ends while further notices are waited for: what he owned would go to those who are told next.
        """
        if self.notices.size:
            return False
        is_time = partial(self._is_time, now_s, self._hand_over_s())
        return self._members.end_work(is_time, partial(is_time, last=True), book.begun)

    def may_begin(self, now_s: float) -> Mapping[str, NodeRecord]:
        """Return the nodes that may be given something to do: those leaving as long as they have time for it."""
        ready = self._members.index.by_name("ready")
        leaving = self._members.index.by_name("leaving")
        if not leaving:
            return ready  # with each report: nothing is copied
        is_time = partial(self._is_time, now_s, self._hand_over_s(), last=True)
        return ChainMap({name: node for name, node in leaving.items() if not is_time(node)}, ready)

    def drain(self, names: Collection[str], until_s: float, now_s: float, book: MicroTaskTable | None) -> None:
        """Let nodes finish what they run, and begin nothing more; unknown and gone ones are left out."""
        self._members.drain(names, until_s)
        if self.notices.size:  # they cannot wait longer than that for others to be told
            self.notices.add(now_s, wait_s=_TOGETHER_SHARE * max(0.0, until_s - now_s))
        self.note_last(book)

    def note_last(self, book: MicroTaskTable | None) -> None:
        """Note the last clock of those who are draining, where it is not known yet: it is what they run."""
        for node in self._members.in_state("draining"):
            if node.last_clock is None and book is not None:
                owned = self._members.placement.owned_by(node.name)
                node.last_clock = max((book.begun(partition) for partition in owned), default=None)

    def serving_on(self, book: MicroTaskTable, now_s: float) -> frozenset[str]:
        """Return those of whom what they serve stays where it is, though they are to go.

        Until the last clock that they do is common: before that, all who go would read from the few who stay, and what
        has come of a clock under way would move with its shards, block by block.
        """
        took_s = self._tiers.backups.took_s

        def stays(node: NodeRecord) -> bool:
            if node.until_s is not None and now_s >= hands_over_by_s(node.until_s, self._clock_s, took_s):
                return False
            return node.state == "leaving" or book.common < (node.last_clock or 0)

        return frozenset(node.name for node in self._going if stays(node))

    def may_leave(self, names: Collection[str]) -> bool:
        """Return whether these nodes can go: what they serve and keep, other reliable nodes can."""
        others = [node for node in self._members.able_to_serve if node.name not in names]
        return bool(others) or not any(self.must_stay(name) for name in names)

    def must_stay(self, name: str) -> bool:
        """Return whether a node is to stay while it is the last of the reliable ones: it serves or keeps shards."""
        node = self._members.nodes.get(name)
        return node is not None and node.tier == "reliable" and self._tiers.holds(name)

    @property
    def _clock_s(self) -> float:
        return self._progress.longest_recent_s

    def _hand_over_s(self) -> float:
        """Return the time that is left for hand-overs.

        Also by those who have nothing to hand over, as long as others who go have: whoever worked on by itself would
        read from the few who stay.
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
        How long it takes to bring what those who go serve to other nodes; 0 where none of them serves anything.
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
        As in `work_until_s`. Whoever reads whole tables moves more in it than a hand-over does.
    hand_over_s : float
        How long it takes to bring what is served to other nodes; 0 if that is not known.
    """
    return until_s - (FLOOR_S + max(_TIMES * hand_over_s, clock_s))
