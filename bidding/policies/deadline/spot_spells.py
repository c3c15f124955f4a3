"""How long spot is there and away, as one machine sees it: hazards by the time since the last change.

Both fall with age: spot that has just come is often gone again in minutes, and spot that has been there for an hour
stays for hours.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S

Floats = NDArray[np.float64]

#: Number of ages, each a step long; the last one is any longer time.
AGES: Final = 6
#: Ends of the age classes of the rates below, in seconds; the last class has no end.
_ENDS_S: Final = (10 * MINUTE_S, 20 * MINUTE_S, 40 * MINUTE_S, 50 * MINUTE_S)
#: Rates per hour at which spot is lost, and comes back, by age. Pooled over the eight records of availability of
#: us-west-2 in 2022 (K80 and V100, one and eight of them); they are a prior, so they are round.
_LOSS_PER_H: Final = (2.5, 1.5, 1.05, 0.7, 0.3)
_RETURN_PER_H: Final = (3.8, 1.5, 1.05, 1.0, 0.25)


def hazards(step_s: float) -> Floats:
    """Return the probabilities that spot changes within the next step, shape (2, AGES): there, and away.

    Column a is the step that begins at age ``a * step_s``.
    """
    edges: Floats = np.arange(AGES + 1, dtype=np.float64) * step_s
    passed = np.array([_passed(_LOSS_PER_H, edges), _passed(_RETURN_PER_H, edges)])
    changes: Floats = 1.0 - np.exp(-np.diff(passed, axis=1))
    return changes


def _passed(rates_per_h: tuple[float, ...], ages_s: Floats) -> Floats:
    """Return the cumulative hazard at each age."""
    begins = np.array((0, *_ENDS_S), dtype=np.float64)
    ends = np.array((*_ENDS_S, np.inf))
    in_class = np.clip(ages_s[:, None], begins, ends) - begins
    total: Floats = in_class @ (np.array(rates_per_h) / HOUR_S)
    return total
