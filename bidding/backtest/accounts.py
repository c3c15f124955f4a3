"""The money and the machine time of what is held: `bidding.billing.HourlyRefund`, hour by hour."""

import numpy as np

from bidding.backtest.compiled import part
from bidding.backtest.markets import Records
from bidding.backtest.outcome import Outcome
from bidding.model import HOUR_S
from bidding.traces import Int64s

_COST, _PAID, _FREE = int(Outcome.COST_MICROS), int(Outcome.PAID_VCPU_S), int(Outcome.FREE_VCPU_S)

#: What no scheme sees of an allocation: when the market will take it; start of the hour in progress, and what was
#: charged for it; its row in the log of purchases, -1 where none is kept.
ACCOUNT = np.dtype([(name, np.int64) for name in ("takes_s", "hour_s", "charge_micros", "row")], align=True)


@part
def prorated(amount: int, part_s: int, whole_s: int) -> int:
    """Return the share of an `amount` of 0 or more, rounded half to even; as `bidding.money.prorate`."""
    quotient = amount * part_s // whole_s
    twice = 2 * (amount * part_s - quotient * whole_s)
    return quotient + 1 if twice > whole_s or (twice == whole_s and quotient % 2 == 1) else quotient


@part
def end_hour(vcpus: int, account: Records, at_s: int, evicted: bool, out: Int64s) -> None:
    """Book what the hour in progress cost until `at_s`: all of it, its share where the job ends in it, or nothing.

    Taken exactly at the hour's end is taken after it: the hour stays paid.
    """
    used_s = at_s - account.hour_s
    if evicted and used_s < HOUR_S:
        out[_FREE] += vcpus * used_s
    else:
        out[_COST] += prorated(account.charge_micros, used_s, HOUR_S)
        out[_PAID] += vcpus * used_s
