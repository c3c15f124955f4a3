"""Use of the money of a billing hour: every second of a paid hour was useful, idle, hand-over or lost."""

from dataclasses import dataclass
from enum import StrEnum

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros, prorate


class Use(StrEnum):
    """Use of money; the five add up to the charge."""

    USEFUL = "useful"  # the machine worked
    IDLE = "idle"  # it booted or loaded, waited for the end of its paid hour, or was terminated before the hour's end
    HAND_OVER = "hand-over"  # it gave its work to others
    LOST = "lost"  # its work was done again by others
    REFUNDED = "refunded"  # the market gave the money back


@dataclass(frozen=True, slots=True)
class MachineLife:
    """Times of a machine's phases, market time; None for a phase that it did not reach.

    Attributes
    ----------
    ready_s : time at which it had loaded its partitions and began to work.
    leaving_s : time of the notice or of the order to end; from then on it handed over.
    ended_s : time of its end.
    done_s : time at which the job's work was done.
    """

    ready_s: float | None
    leaving_s: float | None
    ended_s: float | None
    done_s: float | None


def divide_hour(
    amount: Micros,
    hour_start_s: int,
    refunded: bool,
    life: MachineLife,
    lost_share: float = 0.0,
    paid_s: int = HOUR_S,
) -> dict[Use, Micros]:
    """Return the uses of one machine's charge for one hour.

    Parameters
    ----------
    amount : the charge, micro-dollars.
    hour_start_s : when the hour began.
    lost_share : part of the work done that had to be done again, in [0, 1].
    paid_s : seconds from the hour's beginning that the charge pays for: the whole hour, however long the machine lived,
        or the seconds used if seconds are paid; above 0.

    Returns
    -------
    dict
        Micro-dollars by use; they add up to `amount`.

    Notes
    -----
    Seconds before `ready_s`, after `done_s` and after `ended_s` are idle; those from `leaving_s` on are hand-over; the
    rest is useful, less the share that was lost. A refunded hour is refunded, whatever was done in it.
    """
    if refunded:
        return {Use.REFUNDED: amount}
    end_s = float(hour_start_s + paid_s)
    ready = _within(life.ready_s, hour_start_s, end_s)
    stop = min(_within(life.done_s, hour_start_s, end_s), _within(life.ended_s, hour_start_s, end_s))
    leaving = min(_within(life.leaving_s, hour_start_s, end_s), stop)
    working_s = max(leaving - ready, 0.0)
    handing_s = max(stop - max(leaving, ready), 0.0)
    worked = prorate(amount, round(working_s), paid_s)
    handed = min(prorate(amount, round(handing_s), paid_s), amount - worked)
    lost = round(worked * lost_share)
    parts = {Use.USEFUL: worked - lost, Use.HAND_OVER: handed, Use.LOST: lost}
    parts[Use.IDLE] = amount - sum(parts.values())
    return parts


def _within(at_s: float | None, from_s: float, until_s: float) -> float:
    """Return `at_s` cut to the hour; its end where that never came."""
    return until_s if at_s is None else min(max(at_s, from_s), until_s)
