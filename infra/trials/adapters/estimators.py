"""Estimators of scikit-learn that learn by `partial_fit`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proteus_spot.infra.trials.trial import Trial
from proteus_spot.infra.trials.trial_errors import TrialError


def train_estimator(
    trial: Trial,
    model: Any,
    batches: Callable[[int], Iterable[tuple[Any, Any]]],
    evaluate: Callable[[Any], Mapping[str, float]],
    classes: Any = None,
) -> Any:
    """Train an estimator by one `partial_fit` a batch, and return it.

    Parameters
    ----------
    model : the estimator to begin with, if no state was saved.
    batches : returns the examples and targets of a step: x of shape (n, columns) and y of shape (n,), batch by batch.
    evaluate : returns the metrics of the estimator, by name.
    classes : every label, for a classifier.

    Raises
    ------
    TrialError
        If the estimator has no `partial_fit`.
    """
    if not hasattr(model, "partial_fit"):
        raise TrialError(f"{type(model).__name__} has no partial_fit, so it has no steps; choose one that has")
    model = trial.restore() or model
    options = {} if classes is None else {"classes": classes}
    for step in trial.steps():
        for x, y in batches(step):
            model.partial_fit(x, y, **options)
        trial.report(step, **evaluate(model))
        trial.save(model)
    return model
