"""Who of those who were told to go works until when, and who may go at all. Pure: decides, and moves nothing.

Source: Proteus (EuroSys 2017), 3.3 (the eviction warning is used to end well).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from psengine.events import NoticeReceived
from psengine.membership import Membership
from psengine.microtasks import MicroTaskBook
from psengine.nodes import NodeRecord
from psengine.notices import Gathering, work_until_s
from psengine.progress import Progress
from psengine.tiers import Tiers


class Leaving:
    """The notices that have come, and what time they leave.

    Attributes
    ----------
    notices : Gathering
        Those that were not answered yet.
    """

    def __init__(self, members: Membership, tiers: Tiers, progress: Progress) -> None:
        self._members, self._tiers, self._progress = members, tiers, progress
        self.notices = Gathering()

    def told(self, event: NoticeReceived) -> bool:
        """Take a notice; return whether it is news."""
        if not self._members.notice(event.node, event.seconds_left, event.about):
            return False
        self._members.drain((event.node,), event.now_s + event.seconds_left, works_on=True)
        self.notices.add(event.now_s, event.seconds_left)
        return True

    def end_work(self, book: MicroTaskBook, now_s: float) -> bool:
        """Give those who are leaving nothing new to do, where it is time for that; return whether there are any."""

        def is_time(node: NodeRecord, last: bool = False) -> bool:
            return node.until_s is None or now_s >= self._works_until_s(node, last)

        return self._members.end_work(is_time, partial(is_time, last=True), book.begun)

    def clocks_left(self, now_s: float) -> int:
        """Return how many clocks there is time for until the first of those who are leaving ends; 1 at least."""
        clock_s = self._clock_s
        times = [self._works_until_s(node) - now_s for node in self._members.in_state("leaving")]
        return max(1, int(min(times, default=0.0) / clock_s)) if clock_s else 1

    def may_leave(self, names: Collection[str]) -> bool:
        """Return whether these nodes can go: what they serve and keep, other reliable nodes can."""
        others = [node for node in self._members.able_to_serve if node.name not in names]
        return bool(others) or not any(self.must_stay(name) for name in names)

    def must_stay(self, name: str) -> bool:
        """Return whether a node is to stay as long as it is the last of the reliable ones: it serves or keeps shards."""
        node = self._members.nodes.get(name)
        return node is not None and node.tier == "reliable" and self._tiers.holds(name)

    @property
    def _clock_s(self) -> float:
        return self._progress.longest_recent_s

    def _works_until_s(self, node: NodeRecord, last: bool = False) -> float:
        """Return when a node that is leaving begins nothing more; `last`: see `notices.work_until_s`."""
        hand_over_s = self._tiers.backups.took_s if self._tiers.holds(node.name) else 0.0
        return 0.0 if node.until_s is None else work_until_s(node.until_s, self._clock_s, hand_over_s, last)
