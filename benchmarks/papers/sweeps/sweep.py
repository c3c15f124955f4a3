"""Benchmark `sweep`: what SpotTune saves on a single machine and on other rules, beside the paper's figures.

Every sweep is simulated by the engine of a live one, on prices of later weeks than its eviction table was fitted on.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from time import process_time
from types import MappingProxyType
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.market.backtest_field import CATALOG
from proteus_spot.benchmarks.papers.sweeps.sampling import PARALLEL as SAMPLED_PARALLEL
from proteus_spot.benchmarks.papers.sweeps.sampling import run_sampled
from proteus_spot.benchmarks.papers.sweeps.simulation.evictions import EvictionsByCapacity
from proteus_spot.benchmarks.papers.sweeps.simulation.offers import (
    Clairvoyant,
    PredictorProbabilities,
    Probabilities,
    TableProbabilities,
)
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.simulate import SweepSimulator
from proteus_spot.benchmarks.papers.sweeps.simulation.single_spot import SingleChoice
from proteus_spot.benchmarks.papers.sweeps.sweep_field import (
    SEED,
    SweepField,
    applications,
    roughness,
    sweep_field,
    wholly_divided,
)
from proteus_spot.benchmarks.papers.sweeps.sweep_pictures import draw_approaches, draw_thetas
from proteus_spot.benchmarks.papers.sweeps.sweep_runs import MCNT, PARALLEL, SweepFigures, run_singles, run_sweeps
from proteus_spot.bidding.billing import HourlyRefund
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.evictions.neural.revpred import RevPred
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan

_NAME = "sweep"
_STARTS = 24
_THETAS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
#: Sweeps of 16 trials that one core should simulate in a minute.
_ASKED_A_MINUTE = 1000
_PAPER = "the paper's, on its market"
_PAPER_MOST = "the paper's most"
#: Starts from which sweeps of every application are timed, in so many rounds.
_TIMED, _ROUNDS = 8, 4
#: A deadline as a share of the time that sweeps take without one.
_DEADLINE = 0.9
#: The paper's figures against the cheapest and the fastest single machine: the percentage that theta 1 saves and its
#: rate, and those of theta 0.7.
_SINGLE = MappingProxyType(
    {SingleChoice.CHEAPEST: (41.5, 2.65, 75.64, 13.1), SingleChoice.FASTEST: (86.04, 3.36, 94.18, 16.6)}
)


def run(scratch: Path, picture: Path | None = None, starts: int = _STARTS) -> list[Figure]:
    """Measure on one thread.

    Parameters
    ----------
    picture : target of the pictures; the one by theta has ``-theta`` before its suffix.
    starts : sweeps of each application under each rule.
    """
    named = os.environ.get("PROTEUS_TRACES")
    folder = Path(named) if named and (Path(named) / CATALOG).exists() else None
    records, source = applications()
    about = f"{source}; {len(records)} applications x {starts} starts"
    six = _Pool("six types", sweep_field(folder), records, starts, about)
    rough = _Pool("rough markets", sweep_field(folder, rough=True), records, starts, about)
    divided = [wholly_divided(record) for record in records]
    linear = _Pool("rough markets, vCPUs divide a step wholly", sweep_field(folder, rough=True), divided, starts, about)
    if picture is not None:
        six.draw(picture)
    return [
        *six.savings(),
        *six.accuracy(),
        *six.free(),
        *(six.against(stop) for stop in ("asha", "median")),
        six.checkpoints(),
        *six.samplers(),
        *six.deadline(),
        *rough.savings(),
        *rough.free(),
        *linear.brief(),
        *six.rates(),
    ]


class _Pool:
    """The sweeps of all applications in one pool of markets."""

    def __init__(
        self, name: str, field: SweepField, records: Sequence[RecordedTrials], starts: int, about: str
    ) -> None:
        self._name, self._field, self._records = name, field, records
        self._starts_s = field.starts(starts)
        self._note = f"{name}, {len(field.prices.markets)} markets; {field.note}; {about}"

    def sweeps(self, name: str, **options: Any) -> SweepFigures:
        return run_sweeps(name, self._field, self._records, self._starts_s, **options)

    def at_theta(self, theta: float) -> SweepFigures:
        return self.sweeps(f"theta {theta:g}", theta=theta)

    @cached_property
    def full(self) -> SweepFigures:
        return self.at_theta(1.0)

    @cached_property
    def usual(self) -> SweepFigures:
        return self.at_theta(0.7)

    @cached_property
    def rules(self) -> dict[str, SweepFigures]:
        return {stop: self.sweeps(stop, stop=stop) for stop in ("asha", "median")}

    @cached_property
    def singles(self) -> dict[tuple[SingleChoice, bool], SweepFigures]:
        found = {}
        for choice in SingleChoice:
            for in_series in (True, False):
                name = f"{choice} spot, {'in series' if in_series else 'each alone'}"
                inputs = (name, self._field, self._records, self._starts_s, choice)
                found[choice, in_series] = run_singles(*inputs, in_series=in_series)
        return found

    def draw(self, picture: Path) -> None:
        names = [record.application.partition(":")[0] for record in self._records]
        approaches = [self.usual, self.full, *self.singles.values(), *self.rules.values()]
        draw_approaches(approaches, names, self._note, picture)
        by_theta = {0.7: self.usual, 1.0: self.full}
        by_theta |= {theta: self.at_theta(theta) for theta in _THETAS if theta not in by_theta}
        draw_thetas(by_theta, names, self._note, picture.with_stem(f"{picture.stem}-theta"))

    def savings(self) -> list[Figure]:
        """Return costs and rates against single machines, and theta 0.7 against 1."""
        found = []
        for (choice, _), single in self.singles.items():
            published = _SINGLE[choice]
            for measured, (saves, rate) in ((self.full, published[:2]), (self.usual, published[2:])):
                what = f"{measured.name} costs less than {single.name}"
                found.append(self._figure(what, "%", _percent(measured.usd, single.usd), [saves]))
                rates = (measured.rates.mean(axis=1) / single.rates.mean(axis=1)).tolist()
                what = f"performance-cost rate of {measured.name} against {single.name}"
                found.append(self._figure(what, "x", rates, [rate]))
        saved = _percent(self.usual.usd, self.full.usd)
        steps = (100 * (1 - self.usual.steps.mean(axis=1))).tolist()
        return [
            *found,
            self._figure("theta 0.7 costs less than theta 1", "%", saved, [57.16]),
            self._figure(
                "theta 0.7 costs less than theta 1", "%", saved, steps, "the share of steps that it leaves out"
            ),
        ]

    def brief(self) -> list[Figure]:
        """Return the cost at theta 1 against the cheapest machine, and the share of free steps."""
        found = []
        for in_series in (True, False):
            single = self.singles[SingleChoice.CHEAPEST, in_series]
            saves = _percent(self.full.usd, single.usd)
            found.append(self._figure(f"theta 1 costs less than {single.name}", "%", saves, [41.5]))
        free = (100 * self.full.free.mean(axis=1)).tolist()
        return [*found, self._figure("free steps, per second, first hour free", "%", free, [77.5])]

    def accuracy(self) -> list[Figure]:
        """Return how often the best trial is found."""
        return [
            self._figure(f"best trial {what} at theta 0.7", "%", [100 * float(hits.mean())], [paper])
            for what, hits, paper in (
                ("predicted best", self.usual.top1, 70.0),
                ("among the predicted best three", self.usual.top3, 100.0),
            )
        ]

    def free(self) -> list[Figure]:
        """Return the share of free steps at theta 1: as the paper bills, by whole hours, and by capacity."""
        markets, traces = self._field.prices.markets, self._field.prices.traces
        ways = {
            "per second, first hour free": self.full,
            "the same with a predictor that knows the future": self.sweeps(
                "clairvoyant", probabilities=Clairvoyant(traces, markets)
            ),
            "hourly-refund": self.sweeps("hourly-refund", billing=HourlyRefund(), billing_name="hourly-refund"),
            "per second, evictions by capacity (an advisor's bands of 2022)": self.sweeps(
                "by capacity",
                evictions=EvictionsByCapacity(self._field.rates_per_s, SEED),
                probabilities=TableProbabilities(self._field.capacity_table, markets),
            ),
        }
        return [
            self._figure(f"free steps, {what}", "%", (100 * one.free.mean(axis=1)).tolist(), [77.5])
            for what, one in ways.items()
        ]

    def against(self, stop: str) -> Figure:
        """Return the cost of a sweep beside that under another rule."""
        usual, rule = self.usual, self.rules[stop]
        said = (
            f"completion {usual.hours.mean():.1f} h compared with {rule.hours.mean():.1f} h; the best trial is "
            f"the sweep's best in {100 * usual.top1.mean():.0f} % compared with {100 * rule.top1.mean():.0f} % of the "
            "applications"
        )
        ours, beside = usual.usd.mean(axis=1).tolist(), rule.usd.mean(axis=1).tolist()
        return self._figure("a sweep under earlycurve, theta 0.7", "$", ours, beside, f"rule {stop}", said)

    def checkpoints(self) -> Figure:
        """Return the share of a trial's time for a restore and an upload of its state (Figure 12)."""
        shares = []
        for record in applications(hours=None)[0]:
            moved_s = record.restore_s + record.upload_s
            trained_s = record.step_s.mean(axis=1) * record.steps
            shares.append(100 * float((moved_s / (trained_s + moved_s)).mean()))
        said = "one of each in a trial, as recorded, on the disk of one machine; steps are not stretched"
        return self._figure("checkpoint and restore, share of a trial's time", "%", shares, [10.0], _PAPER_MOST, said)

    def samplers(self) -> list[Figure]:
        """Return how often Optuna's TPESampler finds the best of all settings, and what that costs, beside random."""
        inputs = self._field, self._records, self._starts_s
        tpe, random = (run_sampled(*inputs, name) for name in ("TPESampler", "random"))
        said = f"as many trials as the grid has, {SAMPLED_PARALLEL} at a time; a setting may come twice; theta 0.7"
        found, at_random = ((100 * one.found.mean(axis=1)).tolist() for one in (tpe, random))
        usd, usd_at_random = (one.usd.mean(axis=1).tolist() for one in (tpe, random))
        return [
            self._figure("sweeps by TPESampler that find the best setting", "%", found, at_random, "random", said),
            self._figure("a sweep by TPESampler", "$", usd, usd_at_random, "random", said),
        ]

    def deadline(self) -> list[Figure]:
        """Return how many sweeps end in nine tenths of the time of those without a deadline, and what they cost."""
        usual = self.usual
        limits_h = _DEADLINE * np.median(usual.hours, axis=1)
        pressed = self.sweeps("deadline", theta=0.7, deadlines_s=(limits_h * 3600).astype(int).tolist())
        in_time, before = ((100 * (one.hours <= limits_h[:, None]).mean(axis=1)).tolist() for one in (pressed, usual))
        usd, usd_before = (one.usd.mean(axis=1).tolist() for one in (pressed, usual))
        said = f"the deadline is {_DEADLINE:g} of the median time of an application's sweeps without one; theta 0.7"
        return [
            self._figure("sweeps that end by their deadline", "%", in_time, before, "the same without it", said),
            self._figure("a sweep with a deadline", "$", usd, usd_before, "the same without it", said),
        ]

    def rates(self) -> list[Figure]:
        """Measure sweeps a minute on one core with the predictors `table` and `revpred`, each curve fitted before."""
        field, prices = self._field, self._field.prices
        by_table = self._rate(TableProbabilities(field.table, prices.markets))
        # The time of an answer does not depend on the weights, so the networks are not trained for it. They answer
        # each market's share of evicted bids, since the number of moves, and so of answers, depends on that.
        shares = {market: min(max(roughness(field.table, market), 0.001), 0.999) for market in prices.markets}
        model = PredictorModel(
            "revpred",
            {market: RevPred(positives=share) for market, share in shares.items()},
            fit_survival(field.traces, TimeWindow(field.fit_from_s, prices.from_s)),
            {},
        )
        by_network = self._rate(PredictorProbabilities(model, prices.traces, prices.markets))
        steps = ", ".join(f"{record.trials} x {record.steps}" for record in self._records)
        said = f"trials x steps: {steps}"
        what = "simulated sweeps, one core, predictor"
        return [
            self._figure(
                f"{what} table", "sweeps/min", by_table, [float(_ASKED_A_MINUTE)], "the least asked for", said
            ),
            self._figure(
                f"{what} revpred", "sweeps/min", by_network, by_table, "predictor table", f"{said}; not trained"
            ),
        ]

    def _rate(self, probabilities: Probabilities) -> list[float]:
        plan = SweepPlan(1, 1, theta=0.7, mcnt=MCNT, parallel=PARALLEL)
        simulators = [SweepSimulator(record, plan, self._field.prices, probabilities) for record in self._records]
        starts_s = self._field.starts(_TIMED)
        for simulator in simulators:  # fits the curves
            simulator.run(self._field.prices.from_s)
        rates = []
        for part in range(_ROUNDS):
            began_s = process_time()
            seeded = list(enumerate(starts_s))[part::_ROUNDS]
            outcomes = [simulator.run(at_s, seed) for seed, at_s in seeded for simulator in simulators]
            rates.append(60 * len(outcomes) / (process_time() - began_s))
        return rates

    def _figure(
        self, what: str, unit: str, ours: list[float], beside: list[float], beside_is: str = _PAPER, said: str = ""
    ) -> Figure:
        note = f"{self._note}; {said}" if said else self._note
        return figure(_NAME, f"{self._name}: {what}", unit, ours, beside, beside_is, note)


def _percent(ours: np.ndarray, others: np.ndarray) -> list[float]:
    """Return by how many percent the mean cost of each application is below the others'."""
    saved: list[float] = (100 * (1 - ours.mean(axis=1) / others.mean(axis=1))).tolist()
    return saved
