"""Learning curves: what a trial's metric will be at its last step, from what it was until now.

The modules:

    cleaning      reported values as an ascending curve of finite losses, or the reason why it cannot be predicted
    curve_fit     bounded nonlinear least-squares fit of one stage, with the uncertainty of what it predicts
    curve_stages  where a stage begins, where a curve is a plateau, whether it rises
    early_curve   EarlyCurve: stages, each a bounded fit; the last one predicts
"""

from proteus_spot.bidding.tuning.curves.early_curve import CurvePrediction, predict_final

__all__ = ["CurvePrediction", "predict_final"]
