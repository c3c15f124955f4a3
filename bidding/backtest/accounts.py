"""Charges and machine time of held allocations: the models of `bidding.billing`, hour by hour."""

import numpy as np

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.price_arrays import Markets, Records, price_seconds
from proteus_spot.bidding.billing.expected import BillingKind, is_refunded
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

_COST, _PAID, _FREE = int(Outcome.COST_MICROS), int(Outcome.PAID_VCPU_S), int(Outcome.FREE_VCPU_S)
_HOURLY_REFUND, _PER_SECOND = int(BillingKind.HOURLY_REFUND), int(BillingKind.PER_SECOND)

#: Facts of an allocation that no scheme sees: time of its eviction; start of the hour in progress, and the cost of a
#: whole hour at its price; its row in the log of purchases, -1 if it has none.
ACCOUNT = np.dtype([(name, np.int64) for name in ("takes_s", "hour_s", "charge_micros", "row")], align=True)


@inline_jit
def prorated(amount: int, part_s: int, whole_s: int) -> int:
    """Return the share of an `amount` of 0 or more, rounded half to even; as `bidding.market.money.prorate`."""
    quotient = amount * part_s // whole_s
    twice = 2 * (amount * part_s - quotient * whole_s)
    return quotient + 1 if twice > whole_s or (twice == whole_s and quotient % 2 == 1) else quotient


@inline_jit
def end_hour(
    setting: Records, markets: Markets, held: Records, account: Records, at_s: int, evicted: bool, out: Int64s
) -> None:
    """Book the cost of the hour in progress until `at_s`: all of it, its share if the job ends in it, or nothing.

    An eviction exactly at the hour's end counts as after it: the hour stays paid. Machine time is free in a refunded
    hour, else paid.
    """
    used_s = at_s - account.hour_s
    first_hour = account.hour_s == held.launched_s
    if evicted and used_s < HOUR_S and is_refunded(setting.billing, first_hour):
        out[_FREE] += held.vcpus * used_s
        return
    out[_PAID] += held.vcpus * used_s
    if setting.billing == _HOURLY_REFUND:
        out[_COST] += prorated(account.charge_micros, used_s, HOUR_S)
    elif used_s > 0:
        out[_COST] += _by_second(setting, markets, held, account, used_s, first_hour)


@inline_jit
def _by_second(
    setting: Records, markets: Markets, held: Records, account: Records, used_s: int, first_hour: bool
) -> int:
    """Return the cost of the seconds used of an hour; of a minimum charge, their share."""
    if setting.billing != _PER_SECOND:
        return prorated(account.charge_micros, used_s, HOUR_S)
    paid_s = max(used_s, setting.minimum_s) if first_hour else used_s
    if setting.reprices == 1:
        seconds = price_seconds(markets, held.market, account.hour_s, account.hour_s + paid_s)
        charge = prorated(seconds * held.count, 1, HOUR_S)
    else:
        charge = prorated(account.charge_micros, paid_s, HOUR_S)
    return prorated(charge, used_s, paid_s)
