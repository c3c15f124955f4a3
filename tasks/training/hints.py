"""One-line hints on a training that has ended."""

from collections.abc import Mapping, Sequence

from proteus_spot.studies.job_spec import Training

#: A loss that is still this share of the first one is high.
_HIGH = 0.4


def loss_hint(
    training: Training, losses: Sequence[Sequence[float | None]], metrics: Mapping[str, float | None] | None = None
) -> str:
    """Return a hint if `mlr` has learnt little, or nothing that holds for other data; else an empty text.

    Parameters
    ----------
    losses : clock and mean loss of each clock, in order; None for a loss that was not finite. The first is that of a
        guess, as the model begins with zeros.
    metrics : figures of the held-out part.
    """
    values = [loss for _, loss in losses if loss is not None]
    if training.app != "mlr" or training.app_params.get("features") or len(values) < 2 or values[0] <= 0:
        return ""
    first, last, held = values[0], values[-1], (metrics or {}).get("loss")
    plain = training.standardizes is False
    if held is not None and held > first:
        what = f"the loss on what is held out is {held:.3g}, and that of a guess {first:.3g}"
    elif plain and last > _HIGH * first:
        what = f"the loss is still {_times(last / first)} that of the first clock"
    else:
        return ""
    if plain:
        return f"{what}; inputs of different scales are learnt slowly: leave out standardize=false, or give more clocks"
    return f"{what}; try shorter steps (--param step={training.app_params.get('step', 1.0) / 10:g}), or more examples"


def _times(share: float) -> str:
    """Return a share as text: percents of what is less than the whole, times of what is more."""
    return f"{share:.0%} of" if share < 1.0 else f"{share:.1f} times"
