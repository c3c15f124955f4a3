"""What became of a job, as one row of whole numbers."""

from enum import IntEnum


class Outcome(IntEnum):
    """Columns of a job's row."""

    COST_MICROS = 0  # the last hours by the seconds used
    RUNTIME_S = 1
    ON_DEMAND_VCPU_S = 2  # machine time by who paid: on-demand machines,
    PAID_VCPU_S = 3  # spot machines in hours that were paid,
    FREE_VCPU_S = 4  # and in hours that were refunded
    EVICTIONS = 5
    PURCHASES = 6
    FINISHED = 7  # 0: given up at the window's end


#: Columns of a row of the log of purchases.
LOG_COLUMNS = ("granted_s", "market", "count", "bid_micros", "ended_s", "evicted")
