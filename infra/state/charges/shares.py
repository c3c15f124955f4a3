"""The share of each machine of an allocation in an hour's charge. No I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.state.records import AllocationRecord, InstanceLife, LedgerLine


@dataclass(frozen=True, slots=True)
class Share:
    """The charge of one machine for one hour.

    Attributes
    ----------
    machine : index in `AllocationRecord.machines`.
    amount : micro-dollars; the amounts of all machines add up to the line.
    refunded : whether the amount was refunded.
    paid_s : seconds of the hour that the amount pays for.
    """

    machine: int
    amount: Micros
    refunded: bool
    paid_s: int = HOUR_S


def by_hour(record: AllocationRecord, line: LedgerLine, refund: LedgerLine | None) -> list[Share]:
    """Return the shares of a charge for whole hours.

    The amounts give the number of charged machines. Their ends give which: those that lived when the hour began.
    Refunded are those that were evicted within the hour, or were charged although they had ended before it.
    """
    machines = _charged_machines(record, line, refund)
    share, rest = divmod(line.amount_micros, max(len(machines), 1))
    return [Share(index, share + (rank < rest), refunded) for rank, (index, refunded) in enumerate(machines)]


def by_second(record: AllocationRecord, line: LedgerLine, refund: LedgerLine | None) -> list[Share]:
    """Return the shares of a charge for seconds, in proportion to the seconds that each machine lived in the hour.

    The refund belongs to the machines that were evicted within the hour, or to the others if none was.

    Notes
    -----
    Differs: a minimum charge, and a charge at prices that changed within the hour, is divided by the seconds, too.
    """
    lived = {index: _lived_s(life, line.at_s) for index, life in enumerate(record.machines)}
    lived = {index: seconds for index, seconds in lived.items() if seconds > 0} or dict.fromkeys(lived, 1)
    refunded_micros = 0 if refund is None else -refund.amount_micros
    paid_micros = line.amount_micros - refunded_micros
    until_s = line.at_s + HOUR_S
    evicted = [index for index in lived if record.machines[index].taken_within(line.at_s, until_s)]
    others = [index for index in lived if index not in evicted]
    shares = []
    for refunded, amount, owners in (
        (True, refunded_micros, evicted or others),
        (False, paid_micros, others or evicted),
    ):
        if amount:
            parts = _split(amount, [lived[index] for index in owners])
            shares += [Share(index, part, refunded, lived[index]) for index, part in zip(owners, parts, strict=True)]
    return shares


def _lived_s(life: InstanceLife, from_s: int) -> int:
    """Return the seconds that a machine lived of the hour that begins at `from_s`."""
    return HOUR_S if life.ended_at_s is None else min(max(life.ended_at_s - from_s, 0), HOUR_S)


def _split(amount: Micros, weights: Sequence[int]) -> list[Micros]:
    """Return parts of `amount` in proportion to `weights`; they add up to it."""
    parts, assigned, weight_so_far, total = [], 0, 0, sum(weights)
    for weight in weights:
        weight_so_far += weight
        parts.append(amount * weight_so_far // total - assigned)
        assigned += parts[-1]
    return parts


def _charged_machines(record: AllocationRecord, line: LedgerLine, refund: LedgerLine | None) -> list[tuple[int, bool]]:
    """Return (index, refunded) of each machine that a charge is for; see `by_hour`."""
    machines = record.machines
    if not line.price_micros:
        return [(index, False) for index, life in enumerate(machines) if life.alive_at(line.at_s)]
    longest = sorted(range(len(machines)), key=lambda index: -(machines[index].ended_at_s or math.inf))
    charged = longest[: line.amount_micros // line.price_micros]
    refunded_count = 0 if refund is None else round(-refund.amount_micros / line.price_micros)
    until_s = line.at_s + HOUR_S
    refunded_first = sorted(
        charged,
        key=lambda index: machines[index].alive_at(line.at_s) and not machines[index].taken_within(line.at_s, until_s),
    )
    return [(index, rank < refunded_count) for rank, index in enumerate(refunded_first)]
