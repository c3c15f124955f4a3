"""Benchmark `revpred`: the predictors of evictions on later weeks, and what they do to the cost of a sweep.

Each is fitted to the first weeks of real prices and judged on the weeks after them, none shared, in the six markets
where most bids were evicted in the fitted weeks. Bids are judged twice: at a random distance from the price, as sweeps
bid, and near the border between eviction and survival, as Algorithm 2 has them.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.market.backtest_field import CATALOG
from proteus_spot.benchmarks.papers.sweeps.revpred_picture import draw_scores
from proteus_spot.benchmarks.papers.sweeps.revpred_scores import Scores, judge
from proteus_spot.benchmarks.papers.sweeps.simulation.offers import (
    Clairvoyant,
    NoEvictions,
    PredictorProbabilities,
    Probabilities,
)
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import sweep_prices
from proteus_spot.benchmarks.papers.sweeps.sweep_field import SEED, SweepField, applications, roughness, sweep_field
from proteus_spot.benchmarks.papers.sweeps.sweep_runs import run_sweeps
from proteus_spot.bidding.evictions.calibration import block_se
from proteus_spot.bidding.evictions.neural.revpred import RevPred
from proteus_spot.bidding.evictions.predictors.base import CannotFit, EvictionPredictor
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel, fit_predictors
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet

_NAME = "revpred"
_PREDICTORS = ("table", "logistic", "tributary", "revpred")
_MIXED = "revpred, half of its limits random"
_MARKETS = 6
_STARTS = 16
_THETA = 0.7
_PAPER = "the paper's, on its market"


class MixedRevPred(RevPred):
    """RevPred that has also seen limits as they are bid."""

    random_share = 0.5


def run(scratch: Path, picture: Path | None = None, starts: int = _STARTS) -> list[Figure]:
    """Measure on one thread.

    Parameters
    ----------
    picture : target of the picture of accuracy and F1 by market.
    starts : sweeps of each application under each predictor.
    """
    named = os.environ.get("PROTEUS_TRACES")
    folder = Path(named) if named and (Path(named) / CATALOG).exists() else None
    field = roughest(sweep_field(folder, rough=True), _MARKETS)
    traces, window = field.traces, TimeWindow(field.fit_from_s, field.prices.from_s)
    models, seconds = fit_all(traces, window)
    later = TimeWindow(field.prices.from_s, field.prices.until_s)
    scores = {kind: judge(models, traces, later, kind) for kind in ("random", "border")}
    names = [str(market) for market in field.prices.markets]
    if picture is not None:
        draw_scores(scores, names, field.note, picture)
    found = [
        *_times(seconds, field.note),
        *(one for kind in scores for one in _beside_tributary(scores[kind], kind, names, field.note)),
        *(one for kind in scores for one in _gains(scores[kind], kind, field.note)),
    ]
    return [*found, *_costs(field, models, starts)]


def roughest(field: SweepField, count: int) -> SweepField:
    """Return the field of the markets in which most bids were evicted in the fitted weeks."""
    markets = sorted(field.prices.markets, key=lambda market: -roughness(field.table, market))[:count]
    traces = TraceSet({market: field.traces[market] for market in markets})
    prices = sweep_prices(traces, markets, field.prices.types, field.prices.from_s, field.prices.until_s)
    return replace(field, prices=prices, traces=traces)


def fit_all(traces: TraceSet, window: TimeWindow) -> tuple[dict[str, PredictorModel], dict[str, float]]:
    """Return the fitted predictors by name, and the processor seconds of each fit."""
    models, seconds = {}, {}
    for name in _PREDICTORS:
        began_s = process_time()
        models[name] = fit_predictors(name, traces, window, SEED)
        seconds[name] = process_time() - began_s
    mixed: dict[Market, EvictionPredictor] = {}
    for market, trace in traces.items():
        try:
            mixed[market] = MixedRevPred().fit(trace, window, SEED)
        except CannotFit:
            continue  # the model's curves answer for the market, as everywhere
    models[_MIXED] = replace(models["revpred"], predictors=mixed)
    return models, seconds


def _times(seconds: Mapping[str, float], note: str) -> list[Figure]:
    return [
        figure(_NAME, f"fit of {name}, {_MARKETS} markets", "s", [seconds[name]], [seconds["table"]], "the table", note)
        for name in ("logistic", "tributary", "revpred")
    ]


def _beside_tributary(scores: Mapping[str, Scores], kind: str, names: list[str], note: str) -> list[Figure]:
    found = []
    base = scores["tributary"]
    for name, score in scores.items():
        if name == "tributary":
            continue
        for what, ours, beside in (
            ("accuracy", score.accuracy, base.accuracy),
            ("F1", score.f1, base.f1),
            ("Brier score", score.brier, base.brier),
        ):
            by_market = ", ".join(f"{market} {a:.3f}/{b:.3f}" for market, a, b in zip(names, ours, beside, strict=True))
            found.append(
                figure(
                    *(_NAME, f"{what} of {name}, {kind} bids", "", ours.tolist(), beside.tolist(), "tributary"),
                    f"{note}; {by_market}",
                )
            )
    return found


def _gains(scores: Mapping[str, Scores], kind: str, note: str) -> list[Figure]:
    ours, beside = scores["revpred"], scores["tributary"]
    found = []
    for what, mine, theirs, paper in (
        ("accuracy", ours.accuracy.mean(), beside.accuracy.mean(), 20.32),
        ("F1", ours.f1.mean(), beside.f1.mean(), 34.03),
    ):
        gain = 100 * (float(mine / theirs) - 1) if theirs > 0 else float("inf")
        what = f"mean {what} of revpred above tributary's, {kind} bids"
        found.append(figure(_NAME, what, "%", [gain], [paper], _PAPER, note))
    return found


def _costs(field: SweepField, models: Mapping[str, PredictorModel], starts: int) -> list[Figure]:
    """Measure sweeps that are decided by each predictor, by none, and with future prices known."""
    records, source = applications()
    starts_s, markets = field.starts(starts), field.prices.markets
    probabilities: dict[str, Probabilities] = {
        "none": NoEvictions(),
        **{name: PredictorProbabilities(model, field.traces, markets) for name, model in models.items()},
        "clairvoyant": Clairvoyant(field.traces, markets),
    }
    measured, rates = {}, {}
    for name, chances in probabilities.items():
        began_s = process_time()
        measured[name] = run_sweeps(name, field, records, starts_s, theta=_THETA, probabilities=chances)
        rates[name] = 60 * len(records) * len(starts_s) / (process_time() - began_s)
    note = f"{field.note}; {source}; {len(records)} applications x {starts} starts, theta {_THETA:g}"
    base = measured["tributary"]
    found = []
    for name, one in measured.items():
        if name == "tributary":
            continue
        saved, error = percent_less(one.usd, base.usd)
        said = f"{note}; {saved:.1f} ± {error:.1f} % less; {100 * one.free.mean():.0f} % of steps free, "
        said += f"compared with {100 * base.free.mean():.0f} %"
        what = f"a sweep by {name}"
        found.append(figure(_NAME, what, "$", [float(one.usd.mean())], [float(base.usd.mean())], "by tributary", said))
    saved, saved_error = percent_less(measured["revpred"].usd, base.usd)
    less, rate_error = percent_less(measured["revpred"].rates, base.rates)
    found += [
        figure(
            *(_NAME, "revpred's sweep costs less than tributary's", "%", [saved], [25.0], _PAPER),
            f"{note}; ± {saved_error:.1f} by starts",
        ),
        figure(
            *(_NAME, "its performance-cost rate is above tributary's", "%", [-less], [24.0], _PAPER),
            f"{note}; ± {rate_error:.1f} by starts",
        ),
        figure(
            *(_NAME, "simulated sweeps by revpred, one core", "sweeps/min", [rates["revpred"]], [rates["table"]]),
            *("by the table", note),
        ),
    ]
    return found


def percent_less(ours: np.ndarray, beside: np.ndarray) -> tuple[float, float]:
    """Return by how many percent the mean of `ours` is less, and the standard error with starts as the sampling unit.

    Both have shape (applications, starts): the starts are the same, so that they are compared pair by pair.
    """
    sums, counts = ours.mean(axis=0), beside.mean(axis=0)
    return 100 * float(1 - sums.sum() / counts.sum()), 100 * block_se(sums, counts)
