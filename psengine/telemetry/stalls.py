"""How long the remaining nodes waited when nodes joined or left: from the time of each clock and a log of changes.

A change is *carried out* from when the controller receives it until nothing of it is left to do: a new node has
loaded, a leaving one has drained, shards and replicas are where they should be, and the work that was under way when a
node was lost, or was lost with it, is done (again). The clocks in which that was so are *disturbed*. Its stall is their
total time, less that of as many undisturbed clocks: the median of those shortly before, or of those shortly after where
that is more. So clocks that stay longer, because fewer nodes work, are no stall; work that was done again is.

While a job is held (a script of events holds it), no node waits for a change: that time is subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Number of undisturbed clocks that are used on either side.
NEAR = 10


@dataclass(frozen=True)
class Stall:
    """What one change, or several of a kind in the same clock, cost the remaining nodes.

    Attributes
    ----------
    event : join, notice, drain, eviction (a node that had its notice is gone) or loss (one that had none).
    nodes : those that joined or left.
    second : of training, at which the first of them did.
    clocks : the first and the last disturbed clock; None where the training was over.
    usual_s : what an undisturbed clock takes; None where there is none.
    stall_s : see the module; None where `usual_s` is. Never below 0.
    """

    event: str
    nodes: tuple[str, ...]
    second: float
    clocks: tuple[int, int] | None
    usual_s: float | None
    stall_s: float | None

    def record(self) -> dict[str, Any]:
        """Return it JSON-able, in milliseconds."""
        return {
            "event": self.event,
            "nodes": list(self.nodes),
            "second": round(self.second, 3),
            "clocks": None if self.clocks is None else list(self.clocks),
            "usual_ms": None if self.usual_s is None else round(self.usual_s * 1e3, 3),
            "stall_ms": None if self.stall_s is None else round(self.stall_s * 1e3, 3),
        }


def stalls(
    seconds_by_clock: Sequence[float],
    held: Sequence[Sequence[float]],
    changes: Sequence[Mapping[str, Any]],
    left_out: tuple[int, float] = (0, 0.0),
) -> list[Stall]:
    """Return the stalls of a job, in order of time, without those of changes that were over before the first clock.

    Parameters
    ----------
    seconds_by_clock : seconds, shape (clocks,)
        Of clock 1 and on, or of the one after those that are left out; together the time of the training.
    held : sequence of (begin, end)
        Seconds of training in which the job was held, disjoint.
    changes : sequence of dict
        `event`, `node`, `second`, and `until`: when it was carried out, None where it never was. In order of `second`.
    left_out : (int, float)
        Number of clocks before the first one of `seconds_by_clock`, and their seconds.
    """
    n_before, begin_s = left_out
    ends = np.cumsum([begin_s, *seconds_by_clock])
    own = np.diff(ends)  # without the time in which the job was held
    for begin, end in held:
        own -= np.maximum(0.0, np.minimum(ends[1:], end) - np.maximum(ends[:-1], begin))
    changes = [change for change in changes if change["until"] is None or change["until"] >= begin_s]
    touched = [_touched(ends, change) for change in changes]
    is_disturbed = np.zeros(len(own), bool)
    for disturbed in filter(None, touched):
        is_disturbed[slice(*disturbed)] = True
    undisturbed = np.flatnonzero(~is_disturbed)
    found = []
    in_order = sorted(zip(changes, touched, strict=True), key=_first_and_event)
    for (_, event), group in groupby(in_order, key=_first_and_event):
        together = list(group)
        among = [clocks for _, clocks in together if clocks]
        nodes = tuple(dict.fromkeys(str(change["node"]) for change, _ in together))
        second = min(float(change["second"]) for change, _ in together)
        if not among:
            found.append(Stall(event, nodes, second, None, None, 0.0))
            continue
        first, end = among[0][0], max(end for _, end in among)
        usual = _usual(own, undisturbed, first, end)
        stall = None if usual is None else max(0.0, float(own[first:end].sum()) - usual * (end - first))
        found.append(Stall(event, nodes, second, (first + 1 + n_before, end + n_before), usual, stall))
    return sorted(found, key=lambda stall: stall.second)


def stalls_of(result: Mapping[str, Any]) -> list[Stall]:
    """Return the stalls of a job, from its result (see `status.summary`); none if it has no times."""
    return stalls(
        result.get("seconds_by_clock") or (), result.get("held") or (), result.get("changes") or (), left_out_of(result)
    )


def left_out_of(result: Mapping[str, Any]) -> tuple[int, float]:
    """Return the number of clocks that a job lists no seconds of, the first ones, and the seconds of all of these."""
    return int(result.get("clocks_left_out") or 0), float(result.get("seconds_left_out") or 0.0)


def _first_and_event(pair: tuple[Mapping[str, Any], tuple[int, int] | None]) -> tuple[float, str]:
    change, clocks = pair
    return float("inf") if clocks is None else clocks[0], str(change["event"])


def _touched(ends: NDArray[np.float64], change: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the range of indices of the clocks in which a change was carried out; None where all of them were over."""
    begin, until = float(change["second"]), change["until"]
    end = float("inf") if until is None else max(float(until), begin + 1e-9)
    first, last = np.searchsorted(ends[1:], begin, side="right"), np.searchsorted(ends[:-1], end)
    return (int(first), int(last)) if first < last else None


def _usual(own: NDArray[np.float64], undisturbed: NDArray[np.intp], first: int, end: int) -> float | None:
    before, after = undisturbed[undisturbed < first][-NEAR:], undisturbed[undisturbed >= end][:NEAR]
    return max((float(np.median(own[near])) for near in (before, after) if len(near)), default=None)
