"""EarlyCurve: stages, each a bounded fit; the last one predicts."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proteus_spot.bidding.tuning.curves.cleaning import MIN_POINTS, LossCurve, loss_curve
from proteus_spot.bidding.tuning.curves.curve_fit import fit_stage
from proteus_spot.bidding.tuning.curves.curve_stages import plateau_start, rises, stage_starts


@dataclass(frozen=True, slots=True)
class CurvePrediction:
    """The metric expected at a trial's last step.

    Attributes
    ----------
    value : the metric; None: it cannot be predicted, and `why` says why.
    std : its standard deviation, of a normal distribution; None where `value` is.
    stages : the steps at which stages begin.
    plateau_at : the step since which the curve has been a plateau; None: it is none.
    why : how the value was found, or why there is none.
    diverged : whether the newest values are all infinite or no numbers.
    """

    value: float | None
    std: float | None
    stages: tuple[int, ...]
    plateau_at: int | None
    why: str
    diverged: bool = False


def predict_final(
    steps: ArrayLike, values: ArrayLike, final_step: int, direction: str, bound: float | None = None
) -> CurvePrediction:
    """Predict the metric at `final_step` from the values until now.

    Parameters
    ----------
    steps : (n,) steps with a value.
    values : (n,) the metric at each; NaN and infinities are left out.
    direction : ``minimize`` or ``maximize``; of a maximised metric, the bound less the metric is fitted.
    bound : the best value of a maximised metric; None: 1.

    Source: SpotTune, III-C.
    Differs: a curve that rises has its newest values as prediction, since formula (4) only falls. Where 0 (or the
    bound) is far from a curve, or it is beyond that, stages and plateaus follow from its spread, and a3 is free.
    """
    curve = loss_curve(steps, values, direction, bound)
    if curve.cannot:
        return CurvePrediction(None, None, (), None, curve.cannot, curve.diverged)
    return predict_from(curve, stage_starts(curve.losses), final_step)


def predict_from(curve: LossCurve, starts: NDArray[np.intp], final_step: int) -> CurvePrediction:
    """Predict the metric of a curve whose stages begin at the indices `starts`.

    The last stage alone says what follows: the stages tile the steps, and each has coefficients of its own.
    """
    steps, losses = curve.steps, curve.losses
    stages = tuple(int(step) for step in steps[starts])
    plateau = plateau_start(steps, losses, final_step, curve.has_bound)

    def answer(loss: float, std: float, why: str) -> CurvePrediction:
        value, scaled_std = curve.metric(loss), std * curve.unit
        if not (math.isfinite(value) and math.isfinite(scaled_std)):
            return CurvePrediction(None, None, stages, plateau, "its prediction is beyond every number")
        return CurvePrediction(value, scaled_std, stages, plateau, why)

    if steps[-1] >= final_step:
        return answer(float(losses[-1]), 0.0, "it was reported")
    if plateau is not None:
        return answer(float(losses[-1]), float(np.std(losses[steps >= plateau])), f"a plateau since step {plateau}")
    steps, losses = steps[starts[-1] :], losses[starts[-1] :]
    if len(losses) < MIN_POINTS:
        few = f"its stage since step {stages[-1]} has {len(losses)} values, and a prediction needs {MIN_POINTS}"
        return CurvePrediction(None, None, stages, None, few)
    if rises(losses):
        return answer(*_after_rise(steps, losses, final_step), "it rises: its newest values are the prediction")
    fit = fit_stage(steps, losses, has_bound=curve.has_bound)
    if fit is None:
        return CurvePrediction(None, None, stages, None, "no coefficients fit it")
    return answer(*fit.prediction(final_step), f"fitted to the {len(losses)} values since step {stages[-1]}")


def _after_rise(steps: NDArray[np.float64], losses: NDArray[np.float64], final_step: int) -> tuple[float, float]:
    """Return the mean of the newest fifth, and as uncertainty the rise that would follow at the same rate."""
    fifth = max(len(losses) // 5, 1)
    newest, before = losses[-fifth:], losses[-2 * fifth : -fifth]
    slope = abs(newest.mean() - before.mean()) / (steps[-fifth:].mean() - steps[-2 * fifth : -fifth].mean())
    return float(newest.mean()), float(np.hypot(slope * (final_step - steps[-1]), newest.std()))
