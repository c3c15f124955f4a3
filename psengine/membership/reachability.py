"""Which node is done without where two cannot reach each other, while the controller reaches both.

Whoever cannot reach a server fails at its batch, and is given it again. While that goes on no clock ends, so after the
time of a silence one of the two has to go. It is the same with a server that cannot reach who keeps its shards: while
that goes on nothing new is kept.

| of two nodes | then |
|---|---|
| one fails at several, or several fail at one | it is that one |
| one is transient | it is that one, for a reliable one may have what is nowhere else |
| both are transient | it is the one that holds nothing; if both do, the one that asked |
| both are reliable | they are waited for |

A node is first taken for lost, so that it comes back as another process, with other connections. If that one is cut off
as well, it goes at the first word of it; if it holds nothing it is set aside.

Source: Proteus (EuroSys 2017), 3.3 (failures of which there was no notice).
Differs: the paper knows nodes that are lost, not links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psengine.config import Tier
from psengine.membership.failure_detector import SILENCE_S
from psengine.protocol.events import BackedUp, BatchDone, BatchFailed, Event, NotBackedUp

_TRIES = 2

#: the addresses of who asked, and of who did not answer
_Link = tuple[str, str]


@dataclass(frozen=True)
class End:
    """A node as one end of links; `holds` says whether it serves or keeps shards."""

    name: str
    tier: Tier
    holds: bool


@dataclass(frozen=True)
class CutOff:
    """A node to be done without: taken for lost, or `aside`, which leaves its process as it is."""

    address: str
    name: str
    reason: str
    aside: bool


@dataclass
class _Broken:
    since_s: float
    copies: bool
    tries: int = 0


class Links:
    """Calls between nodes that came to nothing."""

    def __init__(self) -> None:
        self._broken: dict[_Link, _Broken] = {}
        self._went: set[str] = set()

    def heard(self, event: Event, now_s: float) -> None:
        """Note whom a node could not reach, or that it has done a batch, or its copies, and so reaches all it needs."""
        match event:
            case BatchFailed(address=asks, unreachable=answers) | NotBackedUp(address=asks, unreachable=answers) if (
                answers
            ):
                copies = isinstance(event, NotBackedUp)
                self._broken.setdefault((asks, answers), _Broken(now_s, copies)).tries += 1
            case BatchDone(address=asks) | BackedUp(address=asks):
                copies = isinstance(event, BackedUp)  # who keeps its shards may be nobody whom its batches need
                self._broken = {
                    link: broken for link, broken in self._broken.items() if link[0] != asks or broken.copies != copies
                }

    def look(self, ends: Mapping[str, End], now_s: float) -> CutOff | None:
        """Return who is to be done without now, one at a time: without it, others may reach each other.

        Parameters
        ----------
        ends : mapping
            {address: node} of those who are there; links of others are forgotten.
        """
        self._broken = {link: broken for link, broken in self._broken.items() if ends.keys() >= set(link)}
        for link, broken in self._broken.items():
            address = self._of_two(link, ends)
            goes, stays = ends[address], ends[link[link[0] == address]]
            lasts = broken.tries >= _TRIES and now_s >= broken.since_s + SILENCE_S
            if goes.tier == "reliable" or not (lasts or goes.name in self._went):
                continue
            self._broken = {other: of for other, of in self._broken.items() if address not in other}
            aside = goes.name in self._went and not goes.holds
            self._went.add(goes.name)
            return CutOff(address, goes.name, f"it and {stays.name} do not reach each other", aside)
        return None

    def _of_two(self, link: _Link, ends: Mapping[str, End]) -> str:
        asks, answers = link
        fails_at = sum(other[0] == asks for other in self._broken)
        fail_at_it = sum(other[1] == answers for other in self._broken)
        if fails_at != fail_at_it:
            return asks if fails_at > fail_at_it else answers

        def dear(address: str) -> tuple[bool, bool]:
            return ends[address].tier == "reliable", ends[address].holds

        return min(link, key=dear)
