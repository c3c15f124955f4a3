"""One descent under a preemption: half of the nodes are away from round 100 to round 200."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import thread_time
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from sklearn.metrics import average_precision_score

from proteus_spot.benchmarks.papers.bgd.splice import SpliceSet
from proteus_spot.psengine.apps.base import Executor, Parameters
from proteus_spot.psengine.apps.bgd import ElasticDescent
from proteus_spot.psengine.apps.bgd.losses import linear_loss
from proteus_spot.psengine.apps.bgd.partition import LinearPartition, margins_of
from proteus_spot.psengine.apps.bgd.roster import Missing
from proteus_spot.psengine.single_process import JobAlone, initial

PARTITIONS = 14
#: Half of the nodes, each with one partition (the paper: the leaves of its tree).
AWAY = frozenset(range(PARTITIONS // 2, PARTITIONS))
LOST, BACK, ROUNDS = 100, 200, 300
L2 = 1e-5
CONSTANT_STEP = 0.1
#: Algorithm 1's: the step of round r is this / (1 + r / 100).
DECAYING_STEP, DECAY = 0.4, 0.01
#: Rounds between evaluations on the test set.
_EVERY = 10

Case = Literal["no failure", "elastic", "stall", "ignore"]
_MISSING: Mapping[Case, Missing] = MappingProxyType(
    {"no failure": "approximate", "elastic": "approximate", "stall": "stall", "ignore": "ignore"}
)
CASES: tuple[Case, ...] = ("no failure", "elastic", "stall", "ignore")
Rule = Literal["line search", "constant step", "decaying step", "L-BFGS"]
#: Parameters of the application.
_PARAMS: Mapping[Rule, dict[str, Any]] = MappingProxyType(
    {
        "constant step": {"solver": "gradient", "step": CONSTANT_STEP},
        "decaying step": {"solver": "gradient", "step": DECAYING_STEP, "decay": DECAY},
        "line search": {"solver": "gradient"},
        "L-BFGS": {"solver": "lbfgs"},
    }
)
RULES: tuple[Rule, ...] = tuple(_PARAMS)


@dataclass
class DescentCurve:
    """Figures by round; redone rounds and those that were waited for count.

    Attributes
    ----------
    objective : list of float
        Over the data of all partitions, after 0, 1, … rounds.
    auprc : dict
        {round: area under the precision-recall curve on the test set}.
    seconds : list of float
        Since the start, as if each partition had a processor: of the tasks that run at one time, the processor time of
        the slowest one.
    redone_rounds : of all rounds, those that were done again.
    """

    objective: list[float] = field(default_factory=list)
    auprc: dict[int, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    redone_rounds: int = 0

    @property
    def rounds(self) -> int:
        """Number of rounds so far, counted from 0."""
        return len(self.objective)

    def at(self, round_number: int) -> float:
        """Return the objective after a number of rounds, or at the end of the descent."""
        return self.objective[min(round_number, len(self.objective) - 1)]

    def round_at(self, seconds: float) -> int:
        """Return the last round that had begun by so many seconds."""
        return max(bisect_right(self.seconds, seconds) - 1, 0)

    def precision_at(self, round_number: int) -> float:
        """Return the area under the precision-recall curve after a number of rounds, or at the end of the descent."""
        return self.auprc[min(round_number // _EVERY * _EVERY, max(self.auprc))]


def partitions_of(data: SpliceSet) -> list[LinearPartition]:
    """Return the training set dealt to the partitions."""
    n, loss = len(data.y), linear_loss("logistic", 2)
    examples = [np.arange(partition, n, PARTITIONS) for partition in range(PARTITIONS)]
    parts = [LinearPartition(data.x.take(rows), data.y[rows], loss, 1 / n) for rows in examples]
    parts[0].gradient(np.zeros((data.x.n_cols + 1, 1)))  # the kernels are compiled here, and not in the first round
    return parts


def descend_under_preemption(
    case: Case, rule: Rule, parts: list[LinearPartition], data: SpliceSet, l2: float = L2
) -> DescentCurve:
    """Run one descent to round 300 and return its figures."""
    return _Run(case, rule, parts, data, l2).curve


class _Run:
    def __init__(self, case: Case, rule: Rule, parts: list[LinearPartition], data: SpliceSet, l2: float) -> None:
        self.curve = DescentCurve()
        self.parts, self.data, self.case, self.l2 = parts, data, case, l2
        params = {"l2": l2, "missing": _MISSING[case], **_PARAMS[rule]}
        self.app = _TimedDescent(data.x.n_cols, len(data.y), PARTITIONS, 2, **params)
        self.job = JobAlone(self.app, parts, initial(self.app, 0))
        self.seconds = 0.0
        self._descend()

    def _descend(self) -> None:
        job, curve, began = self.job, self.curve, 0.0
        while curve.rounds < ROUNDS and job.driver.end is None:
            self._lose_or_bring_back()
            ready = job.ready()
            if not ready:  # it waits for the nodes: the time of a round passes
                self.seconds += float(np.median(np.diff(curve.seconds)))
                self._note("weights", began)
                began = self.seconds
                continue
            steps, redone = job.driver.clock, self._redone_rounds
            self.app.slowest_s = 0.0
            for task in ready:
                job.run(task)
            self.seconds += self.app.slowest_s
            if self._redone_rounds > redone or job.driver.clock > steps:
                self._note("previous" if job.driver.clock > steps else "weights", began)
                began = self.seconds
        self._note("weights", began)
        curve.redone_rounds = self._redone_rounds

    def _lose_or_bring_back(self) -> None:
        """Let the nodes vanish in a round that has just begun; they return for the round after the one under way."""
        if self.case == "no failure":
            return
        if self.curve.rounds == LOST:
            self.job.lose(AWAY)
        elif self.curve.rounds >= (BACK - 1 if self.job.ready() else BACK):
            self.job.bring_back(AWAY)

    @property
    def _redone_rounds(self) -> int:
        return int(self.job.driver.figures()["redone_rounds"])

    def _note(self, table: str, began_s: float) -> None:
        """Note the figures at the model that a round began with, which is that of the rounds before it."""
        curve, model = self.curve, np.asarray(self.job.shared[table], np.float64)
        if curve.rounds % _EVERY == 0:
            scores = margins_of(self.data.test_x, model[:-1])[:, 0]
            curve.auprc[curve.rounds] = float(average_precision_score(self.data.test_y, scores))
        loss = sum(part.scale * part.loss.terms(part.margins(model), part.y)[0] for part in self.parts)
        curve.objective.append(float(loss + 0.5 * self.l2 * np.sum(model[:-1] ** 2)))
        curve.seconds.append(began_s)


class _TimedDescent(ElasticDescent):
    """The application, which notes how long the slowest task took since `slowest_s` was set to 0."""

    slowest_s = 0.0

    def executor(self, data: LinearPartition, partition: int, n_partitions: int) -> _TimedExecutor:  # type: ignore[override]
        return _TimedExecutor(super().executor(data, partition, n_partitions), self)


class _TimedExecutor:
    def __init__(self, executor: Executor, app: _TimedDescent) -> None:
        self._executor, self._app = executor, app

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        began = thread_time()
        done = self._executor.run(args, params, rng)
        self._app.slowest_s = max(self._app.slowest_s, thread_time() - began)
        return done
