"""Accuracy, F1 and Brier score of predictors on bids of later weeks."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.sweep_field import SEED
from proteus_spot.bidding.evictions.lifetimes import grants_s
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.evictions.predictors.training_limits import border_limits, is_passed, random_limits
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet

#: Minutes between two bids that are judged.
_EVERY = 20


@dataclass(frozen=True)
class Scores:
    """Accuracy, F1 and Brier score of a predictor by market; each of shape (markets,).

    A bid is predicted to be evicted if its probability is at least a half. F1 is 0 where none is and none was.
    """

    accuracy: np.ndarray
    f1: np.ndarray
    brier: np.ndarray


def judge(models: Mapping[str, PredictorModel], traces: TraceSet, window: TimeWindow, kind: str) -> dict[str, Scores]:
    """Return the scores of each model on the bids of a kind, `random` or `border`."""
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    for rank, (market, trace) in enumerate(traces.items()):
        at_s = grants_s(trace, window.from_s, window.until_s)[::_EVERY]
        rng = np.random.default_rng([SEED, rank])
        limits = random_limits(trace, at_s, rng) if kind == "random" else border_limits(trace, at_s)
        came = is_passed(trace, at_s, limits)
        for name, model in models.items():
            chance = model.predict_proba(traces, market, at_s, limits)
            said = chance >= 0.5
            f1 = 2 * (said & came).sum() / max(said.sum() + came.sum(), 1)
            rows[name].append((float((said == came).mean()), float(f1), float(((chance - came) ** 2).mean())))
    return {name: Scores(*np.array(row).T) for name, row in rows.items()}
