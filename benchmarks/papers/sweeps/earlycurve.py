"""Benchmark `earlycurve`: EarlyCurve beside SLAQ on generated and recorded curves, its ranking of trials by theta.

The recorded curves are those of benchmarks/papers/sweeps/trials/, one file an application, in the form of `record`;
their seconds of a step are processor time of one thread, so that other work on the machine is not in them.
"""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.sweeps.records import read_record
from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.slaq import predict_final_slaq
from proteus_spot.bidding.tuning.curves import CurvePrediction, predict_final
from proteus_spot.bidding.tuning.curves.cleaning import loss_curve
from proteus_spot.bidding.tuning.curves.curve_stages import stage_starts
from proteus_spot.bidding.tuning.stopping.base import share_of_steps

CURVES = Path(__file__).with_name("curves")
SEED = 2020
THETA = 0.7
THETAS = tuple(tenth / 10 for tenth in range(1, 10))
#: Generated curves of a kind, and their steps.
_CURVES, _STEPS = 200, 200
#: Relative noise of a generated value.
_NOISE = 0.002
#: Generated sweeps of 16 trials, two fifths of them with a second stage.
_SWEEPS = 40
_ROUNDS = 5

Predict = Callable[..., CurvePrediction]


def recorded() -> dict[str, RecordedTrials]:
    """Return the recorded trials by application."""
    return {path.stem: read_record(path) for path in sorted(CURVES.glob("*.npz"))}


def smooth_curve(rng: np.random.Generator) -> np.ndarray:
    """A curve that falls to a floor by a power of the step that formula (4) does not have."""
    steps = np.arange(1, _STEPS + 1)
    floor, rate, power = rng.uniform(0.1, 0.6), rng.uniform(0.02, 0.3), rng.uniform(0.7, 1.8)
    curve = floor + 1 / (rate * steps**power + rng.uniform(0.5, 2))
    return curve * (1 + _NOISE * rng.standard_normal(_STEPS))


def staged_curve(rng: np.random.Generator) -> np.ndarray:
    """A smooth curve, then from a third to a half of the steps on a second one, at less than half the loss."""
    before, after = smooth_curve(rng), smooth_curve(rng)
    turn = int(_STEPS * rng.uniform(0.33, 0.5))
    drop = 0.4 * before[turn - 1] / after[0]
    return np.concatenate([before[:turn], drop * after[: _STEPS - turn]])


def relative_error(predict: Predict, values: np.ndarray, theta: float, direction: str = "minimize") -> float:
    """Return the error of the predicted last value as a share of it; NaN: it cannot be predicted."""
    seen = share_of_steps(theta, len(values))
    found = predict(np.arange(1, seen + 1), values[:seen], len(values), direction)
    return np.nan if found.value is None else abs(found.value - values[-1]) / abs(values[-1])


def ranking_at(predict: Predict, trials: RecordedTrials, theta: float) -> tuple[list[int], list[int]]:
    """Return the trials by predicted last value, the best first, and those that cannot be predicted, which go on."""
    seen = share_of_steps(theta, trials.steps)
    steps = np.arange(1, seen + 1)
    found = [predict(steps, values[:seen], trials.steps, trials.direction) for values in trials.values]
    sign = 1.0 if trials.direction == "minimize" else -1.0
    order = sorted((sign * one.value, number) for number, one in enumerate(found) if one.value is not None)
    unpredicted = [number for number, one in enumerate(found) if one.value is None and not one.diverged]
    return [number for _, number in order], unpredicted


def keeps_best(order: list[int], unpredicted: list[int], trials: RecordedTrials, mcnt: int) -> tuple[bool, float]:
    """Whether the trial with the best last value goes on, and by which share the best that does is worse."""
    ranking, finals = trials.ranking().tolist(), trials.final_values
    best, found = ranking[0], min(order[:mcnt] + unpredicted, key=ranking.index)
    return best == found, float(abs(finals[found] - finals[best]) / abs(finals[best]))


def newest_value(
    steps: np.ndarray, values: np.ndarray, final_step: int, direction: str, bound: float | None = None
) -> CurvePrediction:
    """Predict that nothing changes."""
    return CurvePrediction(float(values[-1]), 0.0, (), None, "the newest value")


def run(scratch: Path) -> list[Figure]:
    """Measure on generated curves, then on those of the tree."""
    trials = recorded()
    made = [generate_trials(SEED + number) for number in range(_SWEEPS)]
    return [
        *_generated(),
        *_recorded(trials),
        *_ranking("recorded", [*trials.values()]),
        *_ranking("generated", made),
        _covered(trials),
        _speed(),
        *_step_times(trials),
    ]


def _errors(what: str, curves: list[np.ndarray], direction: str = "minimize") -> Figure:
    ours, slaq = (
        [relative_error(predict, values, THETA, direction) * 100 for values in curves]
        for predict in (predict_final, predict_final_slaq)
    )
    unpredicted = int(np.isnan(ours).sum())
    note = (
        f"{len(curves)} curves; 90th percentiles {np.nanquantile(ours, 0.9):.3g} and {np.nanquantile(slaq, 0.9):.3g} %"
    )
    if unpredicted:
        note += f"; {unpredicted} not predicted by ours"
    what = f"error of the last value predicted at theta {THETA}, {what}"
    finite = [[one for one in errors if np.isfinite(one)] for errors in (ours, slaq)]
    return figure("earlycurve", what, "%", finite[0], finite[1], "SLAQ: one stage", note)


def _generated() -> list[Figure]:
    rng = np.random.default_rng(SEED)
    return [
        _errors(f"generated {name} curves", [curve(rng) for _ in range(_CURVES)])
        for name, curve in (("smooth", smooth_curve), ("staged", staged_curve))
    ]


def _recorded(trials: dict[str, RecordedTrials]) -> list[Figure]:
    figures = []
    for name, record in trials.items():
        staged = sum(
            len(stage_starts(loss_curve(np.arange(1, record.steps + 1), values, record.direction).losses)) > 1
            for values in record.values
        )
        one = _errors(f"recorded curves of {name}, {staged} of them staged", [*record.values], record.direction)
        figures.append(one)
    return figures


def _ranking(kind: str, sweeps: list[RecordedTrials]) -> list[Figure]:
    figures = []
    rules = (predict_final, predict_final_slaq, newest_value)
    for theta in THETAS:
        ranked = [[ranking_at(predict, record, theta) for record in sweeps] for predict in rules]
        for mcnt in (1, 3):
            hits = [
                [keeps_best(*one, record, mcnt) for one, record in zip(rule, sweeps, strict=True)] for rule in ranked
            ]
            ours, slaq, newest = (100 * float(np.mean([hit for hit, _ in rule])) for rule in hits)
            worst = 100 * max(regret for _, regret in hits[0])
            note = f"{len(sweeps)} sweeps; by SLAQ {slaq:.3g} %; ours at most {worst:.3g} % worse than the best"
            what = f"{kind} sweeps of 16 whose best trial is in the top {mcnt} at theta {theta}"
            figures.append(figure("earlycurve", what, "%", [ours], [newest], "ranking by newest values", note))
    return figures


def _covered(trials: dict[str, RecordedTrials]) -> Figure:
    within = []
    for record in trials.values():
        seen = share_of_steps(THETA, record.steps)
        for values in record.values:
            found = predict_final(np.arange(1, seen + 1), values[:seen], record.steps, record.direction)
            if found.value is not None and found.std is not None:
                within.append(abs(found.value - values[-1]) <= 2 * found.std)
    what = f"recorded last values within two standard deviations of the prediction at theta {THETA}"
    return figure("earlycurve", what, "%", [100 * float(np.mean(within))], [95.4], "a normal distribution")


def processor_seconds(work: Callable[[np.ndarray], object], curves: list[np.ndarray]) -> float:
    """Return the processor time of `work` on all curves."""
    began_s = process_time()
    for values in curves:
        work(values)
    return process_time() - began_s


def _speed() -> Figure:
    rng = np.random.default_rng(SEED)
    curves = [smooth_curve(rng)[: int(THETA * _STEPS)] for _ in range(20)]
    steps = np.arange(1, len(curves[0]) + 1, dtype=float)

    def formula(k: np.ndarray, a0: float, a1: float, a2: float, a3: float) -> np.ndarray:
        return np.asarray(1 / (a0 * k * k + a1 * k + a2) + a3)

    def ours(values: np.ndarray) -> object:
        return predict_final(steps, values, _STEPS, "minimize")

    def plain(values: np.ndarray) -> object:
        try:
            return curve_fit(formula, steps, values, p0=(0.01, 0.1, 1.0, 0.1), bounds=(0, np.inf), max_nfev=200)
        except (RuntimeError, OptimizeWarning):
            return None

    times = [[processor_seconds(work, curves) / len(curves) * 1000 for _ in range(_ROUNDS)] for work in (ours, plain)]
    what = f"a prediction from {len(steps)} values, processor time"
    return figure("earlycurve", what, "ms", times[0], times[1], "scipy's curve_fit of formula (4), one stage")


def _step_times(trials: dict[str, RecordedTrials]) -> list[Figure]:
    return [
        figure(
            "earlycurve",
            f"coefficient of variation of the seconds of a step, {name}",
            "",
            [*record.step_cov.ravel()],
            [0.1],
            "the most for which one mean a trial stands for its steps (SpotTune, IV-A5)",
            f"steps of {1000 * record.step_s.min():.3g} to {1000 * record.step_s.max():.3g} ms",
        )
        for name, record in trials.items()
    ]
