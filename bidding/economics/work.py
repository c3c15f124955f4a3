"""The work that a footprint is expected to do: equations (2) and (3)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def effective_time_s(
    useful_s: ArrayLike, any_eviction_prob: ArrayLike, eviction_overhead_s: float, resize_overhead_s: ArrayLike
) -> NDArray[np.float64]:
    """Return Δt, the seconds in which an allocation makes progress.

    Parameters
    ----------
    useful_s : ω of the allocation, seconds.
    any_eviction_prob : 1 - Π(1 - β_j) over the footprint, in [0, 1].
    eviction_overhead_s : λ, seconds.
    resize_overhead_s : σ, seconds where the decision changes the footprint, else 0.

    Notes
    -----
    (2) Δt = ω - (1 - Π(1 - β_j)) λ - σ.

    Source: Proteus (EuroSys 2017), section 4.1, equation (2).
    Differs: never below zero; overheads cannot undo work that is done.
    """
    overhead = np.asarray(any_eviction_prob) * eviction_overhead_s + np.asarray(resize_overhead_s)
    effective: NDArray[np.float64] = np.maximum(np.asarray(useful_s) - overhead, 0.0)
    return effective


def expected_work(
    scaling_efficiency: float, counts: ArrayLike, effective_s: ArrayLike, work_rates: ArrayLike
) -> NDArray[np.float64]:
    """Return W summed over the last axis, in the unit of `work_rates` (vCPU-seconds where ν is the number of vCPUs).

    Notes
    -----
    (3) W = φ Σ k_i Δt_i ν_i.

    Source: Proteus (EuroSys 2017), section 4.1, equation (3).
    """
    terms = np.asarray(counts) * np.asarray(effective_s) * np.asarray(work_rates)
    work: NDArray[np.float64] = scaling_efficiency * np.sum(terms, axis=-1)
    return work
