"""Whose a line of the ledger is: what of an hour's charge each machine of its allocation answers for. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bidding.market.model import HOUR_S
from bidding.market.money import Micros
from infra.state.records import AllocationRecord, InstanceLife, LedgerLine


@dataclass(frozen=True, slots=True)
class Share:
    """What one machine was charged for one hour.

    Attributes
    ----------
    machine : its place in `AllocationRecord.machines`.
    amount : micro-dollars; those of all machines add up to the line.
    refunded : whether that came back.
    paid_s : the seconds of the hour that it pays for.
    """

    machine: int
    amount: Micros
    refunded: bool
    paid_s: int = HOUR_S


def by_hour(record: AllocationRecord, line: LedgerLine, refund: LedgerLine | None) -> list[Share]:
    """Return the shares of a charge for whole hours.

    The amounts say how many machines were charged, their ends which: those that lived when the hour began; refunded is
    who was taken within it, or had ended before it began and was charged all the same.
    """
    machines = _charged(record, line, refund)
    share, rest = divmod(line.amount_micros, max(len(machines), 1))
    return [Share(index, share + (place < rest), refunded) for place, (index, refunded) in enumerate(machines)]


def by_second(record: AllocationRecord, line: LedgerLine, refund: LedgerLine | None) -> list[Share]:
    """Return the shares of a charge for the seconds of an hour, by those that each machine lived in it.

    What came back is of those that were taken within the hour, and of any other only where it is more than those paid.

    Notes
    -----
    Differs: what was paid for a least time, or at prices that changed within the hour, is divided by the seconds, too.
    """
    lived = {index: _lived_s(life, line.at_s) for index, life in enumerate(record.machines)}
    lived = {index: seconds for index, seconds in lived.items() if seconds > 0} or dict.fromkeys(lived, 1)
    back = 0 if refund is None else -refund.amount_micros
    until_s = line.at_s + HOUR_S
    taken = [index for index in lived if record.machines[index].taken_within(line.at_s, until_s)]
    kept = [index for index in lived if index not in taken]
    shares = []
    for refunded, amount, whose in ((True, back, taken or kept), (False, line.amount_micros - back, kept or taken)):
        if amount:
            whole = [lived[index] for index in whose]
            parts = _divided(amount, whole)
            shares += [Share(index, part, refunded, lived[index]) for index, part in zip(whose, parts, strict=True)]
    return shares


def _lived_s(life: InstanceLife, from_s: int) -> int:
    """Return the seconds that a machine lived of the hour that begins at `from_s`."""
    return HOUR_S if life.ended_at_s is None else min(max(life.ended_at_s - from_s, 0), HOUR_S)


def _divided(amount: Micros, by: Sequence[int]) -> list[Micros]:
    """Return `amount` in parts in proportion to `by`, which add up to it."""
    parts, given, seen, whole = [], 0, 0, sum(by)
    for each in by:
        seen += each
        parts.append(amount * seen // whole - given)
        given += parts[-1]
    return parts


def _charged(record: AllocationRecord, line: LedgerLine, refund: LedgerLine | None) -> list[tuple[int, bool]]:
    """Return which machines of the allocation a charge is for, and whether what was charged for each came back.

    The amounts say how many machines those are, their ends which: charged were those that lived when the hour began,
    refunded is who was taken within it, or had ended before it began and was charged all the same.
    """
    machines = record.machines
    if not line.price_micros:
        return [(index, False) for index, life in enumerate(machines) if life.alive_at(line.at_s)]
    longest = sorted(range(len(machines)), key=lambda index: -(machines[index].ended_at_s or math.inf))
    charged = longest[: line.amount_micros // line.price_micros]
    back = 0 if refund is None else round(-refund.amount_micros / line.price_micros)
    until_s = line.at_s + HOUR_S
    paid_for = sorted(
        charged,
        key=lambda index: machines[index].alive_at(line.at_s) and not machines[index].taken_within(line.at_s, until_s),
    )
    return [(index, place < back) for place, index in enumerate(paid_for)]
