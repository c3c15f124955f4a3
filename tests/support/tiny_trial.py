"""A trial that needs NumPy alone: a weight goes to 1, the faster the larger its rate; slow until a file exists.

Its loss at a step depends on its rate and the step alone, whatever happened to its machines.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

#: Real seconds of a step while the file that `hurry` names is not.
STEP_S = 0.3


def train(trial: Any) -> None:
    """Train the weight; its loss is the square of what it lacks."""
    state = trial.restore()
    weight = np.zeros(1) if state is None else state["weight"]
    hurry = Path(trial.params["hurry"])
    for step in trial.steps():
        if not hurry.exists():
            time.sleep(STEP_S)  # what the training of a step would take
        weight = weight + trial.params["rate"] * (1.0 - weight)
        trial.report(step, loss=loss(trial.params["rate"], step))
        assert np.isclose((1.0 - weight[0]) ** 2, loss(trial.params["rate"], step)), "a step was trained twice, or lost"
        trial.save({"weight": weight})


def loss(rate: float, step: int) -> float:
    """Return the loss after a step."""
    return float((1.0 - rate) ** (2 * step))
