"""How long those who stayed waited when nodes came or went: from the time of each clock and a log of changes.

A change is *carried out* from when the controller hears of it until nothing of it is left to do: a newcomer has loaded,
who was told to go has drained, shards and copies are where they should be, and what was under way when a node was lost,
or was lost with it, is done (again). The clocks in which that was so are *disturbed*. Its stall is what these took
together, less what as many undisturbed clocks take: the median of those shortly before, or of those shortly after where
that is more. So a clock that is longer for good, because fewer nodes work, is no stall; work that was done again is.

While a job is held (a script of events holds it), nobody waits for a change: that time is taken out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from statistics import median
from typing import Any

#: undisturbed clocks looked at on either side
NEAR = 10


@dataclass(frozen=True)
class Stall:
    """What one change, or several of a kind in the same clock, cost those who stayed.

    Attributes
    ----------
    event : join, notice, drain, eviction (a node that had its notice is gone) or loss (one that had none).
    nodes : who came or went.
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
    ends = list(accumulate(seconds_by_clock, initial=begin_s))
    spans = list(pairwise(ends))
    changes = [change for change in changes if change["until"] is None or change["until"] >= begin_s]
    own = [
        end - begin - sum(max(0.0, min(end, float(h[1])) - max(begin, float(h[0]))) for h in held)
        for begin, end in spans
    ]
    touched = [_touched(spans, change) for change in changes]
    disturbed = {clock for clocks in touched if clocks for clock in range(clocks[0], clocks[1] + 1)}
    found = []
    in_order = sorted(zip(changes, touched, strict=True), key=lambda pair: (_first(pair[1]), pair[0]["event"]))
    for _, group in groupby(in_order, key=lambda pair: (_first(pair[1]), pair[0]["event"])):
        together = list(group)
        among = [clocks for _, clocks in together if clocks]
        of = (among[0][0], max(last for _, last in among)) if among else None
        usual = None if of is None else _usual(own, disturbed, of)
        stall = 0.0 if of is None else None
        if of is not None and usual is not None:
            stall = max(0.0, sum(own[of[0] - 1 : of[1]]) - usual * (of[1] - of[0] + 1))
        nodes = tuple(dict.fromkeys(str(change["node"]) for change, _ in together))
        second = min(float(change["second"]) for change, _ in together)
        clocks = None if of is None else (of[0] + n_before, of[1] + n_before)
        found.append(Stall(str(together[0][0]["event"]), nodes, second, clocks, usual, stall))
    return sorted(found, key=lambda stall: stall.second)


def stalls_of(result: Mapping[str, Any]) -> list[Stall]:
    """Return the stalls of a job, from what it says of itself (see `status.summary`); none of one that does not say."""
    return stalls(
        result.get("seconds_by_clock") or (), result.get("held") or (), result.get("changes") or (), left_out_of(result)
    )


def left_out_of(result: Mapping[str, Any]) -> tuple[int, float]:
    """Return the number of clocks that a job lists no seconds of, the first ones, and the seconds of all of these."""
    return int(result.get("clocks_left_out") or 0), float(result.get("seconds_left_out") or 0.0)


def _first(clocks: tuple[int, int] | None) -> float:
    return float("inf") if clocks is None else clocks[0]


def _touched(spans: Sequence[tuple[float, float]], change: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the first and the last clock in which a change was carried out; None where all of them were over."""
    begin, until = float(change["second"]), change["until"]
    end = float("inf") if until is None else float(until)
    there = [clock for clock, (low, high) in enumerate(spans, 1) if high > begin and low < max(end, begin + 1e-9)]
    return (there[0], there[-1]) if there else None


def _usual(own: Sequence[float], disturbed: set[int], of: tuple[int, int]) -> float | None:
    before = [clock for clock in range(of[0] - 1, 0, -1) if clock not in disturbed][:NEAR]
    after = [clock for clock in range(of[1] + 1, len(own) + 1) if clock not in disturbed][:NEAR]
    return max((median(own[clock - 1] for clock in near) for near in (before, after) if near), default=None)
