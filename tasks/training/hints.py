"""One-line hints on a training that has ended."""

from collections.abc import Sequence

from tasks.job_spec import Training

#: A loss that is still this share of the first one is high.
_HIGH = 0.4


def loss_hint(training: Training, losses: Sequence[Sequence[float | None]]) -> str:
    """Return a hint if `mlr` has learnt little from inputs that were not standardized; else an empty text.

    Parameters
    ----------
    losses : clock and mean loss of each clock, in order; None for a loss that was not finite.
    """
    values = [loss for _, loss in losses if loss is not None]
    if training.app != "mlr" or training.standardizes or training.app_params.get("features") or len(values) < 2:
        return ""
    first, last = values[0], values[-1]
    if first <= 0 or last <= _HIGH * first:
        return ""
    return (
        f"the loss is still {last / first:.0%} of that of the first clock; inputs of different scales are learnt "
        "slowly: try --param standardize=true, or more clocks"
    )
