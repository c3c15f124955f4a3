"""Which node is excluded if two cannot reach each other, while the controller reaches both.

A node that cannot reach a server fails at its batch, and receives it again. Meanwhile no clock ends, so after the time
of a silence one of the two is excluded. The same holds for a server that cannot reach the backup of its shards:
meanwhile no new replica is stored.

| of two nodes | excluded |
|---|---|
| one fails at several, or several fail at one | that one |
| one is transient | that one: a reliable one may have the only replica |
| both are transient | the one that holds no shards; if both do, the one that asked |
| both are reliable | neither; the job waits |

A node is first considered lost, so that it rejoins as another process, with other connections. If that one is cut off
as well, it is excluded at the first report; if it holds no shards it is quarantined.

Source: Proteus (EuroSys 2017), 3.3 (failures of which there was no notice).
Differs: the paper knows nodes that are lost, not links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proteus_spot.psengine.config import Tier
from proteus_spot.psengine.membership.failure_detector import SILENCE_S
from proteus_spot.psengine.protocol.events import BackedUp, BatchDone, BatchFailed, Event, NotBackedUp

_TRIES = 2

#: Addresses of the process that asked, and of the one that did not answer.
_Link = tuple[str, str]


@dataclass(frozen=True)
class End:
    """A node as one end of links; `holds`: whether it serves or replicates shards."""

    name: str
    tier: Tier
    holds: bool


@dataclass(frozen=True)
class CutOff:
    """A node to exclude: considered lost, or `aside`, which leaves its process as it is."""

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
    """Calls between nodes that failed."""

    def __init__(self) -> None:
        self._broken: dict[_Link, _Broken] = {}
        self._went: set[str] = set()

    def heard(self, event: Event, now_s: float) -> None:
        """Note a node that another could not reach, or a done batch or replication, whose node reaches all it needs."""
        match event:
            case BatchFailed(address=asks, unreachable=answers) | NotBackedUp(address=asks, unreachable=answers) if (
                answers
            ):
                copies = isinstance(event, NotBackedUp)
                self._broken.setdefault((asks, answers), _Broken(now_s, copies)).tries += 1
            case BatchDone(address=asks) | BackedUp(address=asks):
                copies = isinstance(event, BackedUp)  # its batches may not need the backup
                self._broken = {
                    link: broken for link, broken in self._broken.items() if link[0] != asks or broken.copies != copies
                }

    def look(self, ends: Mapping[str, End], now_s: float) -> CutOff | None:
        """Return the node to exclude now, one at a time: without it, others may reach each other.

        Parameters
        ----------
        ends : mapping
            {address: node} of the present nodes; links of others are dropped.
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
