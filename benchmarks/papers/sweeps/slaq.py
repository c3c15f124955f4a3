"""SLAQ: the same fit over the whole curve, as one stage."""

import numpy as np
from numpy.typing import ArrayLike

from proteus_spot.bidding.tuning.curves.cleaning import loss_curve
from proteus_spot.bidding.tuning.curves.early_curve import CurvePrediction, predict_from


def predict_final_slaq(
    steps: ArrayLike, values: ArrayLike, final_step: int, direction: str, bound: float | None = None
) -> CurvePrediction:
    """Predict the metric at `final_step` as `predict_final` does, with the whole curve as one stage.

    Source: SpotTune, IV-E, of SLAQ: formula (4) with a single stage.
    """
    curve = loss_curve(steps, values, direction, bound)
    if curve.cannot:
        return CurvePrediction(None, None, (), None, curve.cannot, curve.diverged)
    return predict_from(curve, np.zeros(1, dtype=np.intp), final_step)
