"""Columns of a job's result, one row of whole numbers, and summaries over jobs."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike


class Outcome(IntEnum):
    """Columns of a job's row."""

    COST_MICROS = 0  # the last hours by the seconds used
    RUNTIME_S = 1
    ON_DEMAND_VCPU_S = 2  # machine time by payment: on-demand machines,
    PAID_VCPU_S = 3  # spot machines in hours that were paid,
    FREE_VCPU_S = 4  # and in hours that were refunded
    EVICTIONS = 5
    PURCHASES = 6
    FINISHED = 7  # 0: given up at the window's end


#: Columns of a row of the log of purchases.
LOG_COLUMNS = ("granted_s", "market", "count", "bid_micros", "ended_s", "evicted")


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, the tenth and the ninetieth percentile, and the mean's standard error."""

    mean: float
    p10: float
    p90: float
    se: float


def summary(values: ArrayLike) -> Summary:
    """Return the summary of one figure of many jobs; the standard error of a single job is 0.

    Raises
    ------
    ValueError
        If there is no job.
    """
    each = np.asarray(values, dtype=np.float64)
    if not each.size:
        raise ValueError("no job has no summary")
    p10, p90 = np.percentile(each, [10, 90])
    error = each.std(ddof=1) / np.sqrt(each.size) if each.size > 1 else 0.0
    return Summary(float(each.mean()), float(p10), float(p90), float(error))
