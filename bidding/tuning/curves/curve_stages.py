"""Where a stage begins, where a curve is a plateau, whether it rises."""

import math

import numpy as np
from numpy.typing import NDArray

#: Change of a step, relative to the step before, that begins a stage: SpotTune's first threshold.
STAGE_CHANGE = 0.5
#: Change of a step below which a curve is steady: SpotTune's second threshold.
STEADY_CHANGE = 0.01
#: Number of steady steps before a stage begins.
STEADY_STEPS = 5
#: A plateau: over its window the loss moves by no more than this share of itself, or of the curve's range.
PLATEAU_CHANGE = 1e-4
#: The window of a plateau: a share of all steps, and a minimum number of reports.
PLATEAU_SHARE = 0.1
PLATEAU_POINTS = 10


def stage_starts(losses: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices at which stages begin; the first is 0.

    A stage begins at k where ``|m[k] - m[k-1]| / m[k-1] > 0.5``, after five steps whose change is below 0.01 each.

    Source: SpotTune, III-C, formula (7).
    """
    changes = relative_changes(losses)
    steady = np.concatenate([[0], np.cumsum(changes < STEADY_CHANGE)])
    jumps = np.flatnonzero(changes > STAGE_CHANGE)
    jumps = jumps[jumps >= STEADY_STEPS]
    # changes[i] leads to losses[i + 1].
    after_steady = steady[jumps] - steady[jumps - STEADY_STEPS] == STEADY_STEPS
    return np.concatenate([[0], jumps[after_steady] + 1]).astype(np.intp)


def relative_changes(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (n - 1,) the change of each step as a share of the value before it; infinite where that was 0."""
    before, change = np.abs(losses[:-1]), np.abs(np.diff(losses))
    with np.errstate(all="ignore"):
        share = change / before
    share[change == 0] = 0.0
    return share


def plateau_start(
    steps: NDArray[np.float64], losses: NDArray[np.float64], final_step: float, has_bound: bool = True
) -> int | None:
    """Return the first step of the plateau that a curve ends in; None: it has not become one.

    Over the last tenth of all steps, and at least ten reports, the loss moved by less than one part in 10,000: even if
    it went on falling as fast, the steps that are left would take less than 0.1 % off it. Where losses have no bound, a
    part of the curve's range counts, since their size says nothing.

    Differs: SpotTune finishes a trial whose curve "becomes a plateau" (III-C) and defines no plateau. The threshold of
    formula (7) would end a trial before its next stage begins.
    """
    if len(losses) < PLATEAU_POINTS:
        return None
    window = max(int(np.sum(steps > steps[-1] - math.ceil(PLATEAU_SHARE * final_step))), PLATEAU_POINTS)
    newest = losses[-window:]
    if len(newest) < window or steps[-1] - steps[-window] < PLATEAU_SHARE * final_step - 1:
        return None
    limit = PLATEAU_CHANGE * (np.abs(newest).max() if has_bound else np.ptp(losses))
    if np.ptp(newest) > limit:
        return None
    # The longest run of the curve's end that stays within the limit.
    backwards = losses[::-1]
    within = np.maximum.accumulate(backwards) - np.minimum.accumulate(backwards) <= limit
    length = len(losses) if within.all() else int(np.argmin(within))
    return int(steps[-length])


def rises(losses: NDArray[np.float64]) -> bool:
    """Whether a stage ends above where it was before, by more than its noise.

    The last fifth is compared with the lowest fifth. Noise is the scatter of a step against its neighbours.
    """
    fifths = np.array([part.mean() for part in np.array_split(losses, 5)])
    # A difference of second order leaves no slope, and has six times the variance of a value.
    noise = float(np.sqrt(np.mean(np.diff(losses, 2) ** 2) / 6))
    count = max(len(losses) // 5, 1)
    above = fifths[-1] - fifths.min()
    return bool(above > 4 * noise * math.sqrt(2 / count) and above > 0.02 * np.ptp(losses))
