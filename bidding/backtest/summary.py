"""Many jobs in few figures."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, the tenth and the ninetieth percentile, and the mean's standard error."""

    mean: float
    p10: float
    p90: float
    se: float


def summary(values: ArrayLike) -> Summary:
    """Return the summary of one figure of many jobs; the standard error of a single one is 0.

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
