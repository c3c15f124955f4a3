"""One descent under a preemption: half of the nodes are away from round 100 to round 200."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from types import MappingProxyType
from typing import Literal

import numpy as np
from sklearn.metrics import average_precision_score

from proteus_spot.benchmarks.bgd.splice import SpliceSet
from proteus_spot.psengine.apps.bgd.directions import DescentRule, Lbfgs, SteepestDescent
from proteus_spot.psengine.apps.bgd.local_cluster import LocalCluster
from proteus_spot.psengine.apps.bgd.losses import linear_loss
from proteus_spot.psengine.apps.bgd.master import DescentStep, ElasticMaster
from proteus_spot.psengine.apps.bgd.messages import Reply
from proteus_spot.psengine.apps.bgd.partition import LinearPartition, margins_of
from proteus_spot.psengine.apps.bgd.roster import Missing
from proteus_spot.psengine.apps.bgd.steps import FixedStep, SearchedStep, StepRule

PARTITIONS = 14
#: Half of the nodes, one subtree of the tree (the paper: its leaves): their sum is kept where they are lost.
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
RULES: tuple[Rule, ...] = ("constant step", "decaying step", "line search", "L-BFGS")


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
        Since the start, as if each partition had a processor: of each request, the processor time of the slowest
        partition, and that of the master.
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
        self.parts, self.data, self.case = parts, data, case
        self.l2 = np.full((data.x.n_cols + 1, 1), l2)
        self.l2[-1] = 0.0  # the constant's
        direction, step = _rules(rule)
        self.cluster = LocalCluster(parts, self._timed)
        self.steps: list[DescentStep] = []
        self.seconds = self.slowest = 0.0
        self.master = ElasticMaster(
            len(parts),
            np.zeros(self.l2.shape),
            direction,
            step,
            l2=self.l2,
            missing=_MISSING[case],
            on_step=self.steps.append,
        )
        self._descend()

    def _timed(self, partition: int, work: Callable[[], Reply]) -> Reply:
        began = thread_time()
        reply = work()
        self.slowest = max(self.slowest, thread_time() - began)
        return reply

    def _descend(self) -> None:
        master, began = self.master, 0.0
        while self.curve.rounds < ROUNDS:
            if self.curve.rounds >= BACK:
                present = self.cluster.present
                self.cluster.bring_up(master.restarts(present, len(AWAY)) if self.case == "elastic" else AWAY)
            request = master.request(self.cluster.present)
            if request is None and (self.cluster.present >= AWAY or self.curve.rounds >= BACK):
                break  # no step decreases the objective
            if request is None:  # it waits for the nodes: the time of a round passes
                self.seconds += float(np.median(np.diff(self.curve.seconds)))
                self._note(master.model, self.curve.objective[-1], began)
                began = self.seconds
                continue
            is_lost = self.case != "no failure" and self.curve.rounds == LOST and request.kind == "gradient"
            rounds, redone, self.slowest = master.rounds, master.redone_rounds, 0.0
            reply = self.cluster.answer(request, AWAY & self.cluster.present if is_lost else ())
            before = thread_time()
            master.receive(reply)
            self.seconds += self.slowest + thread_time() - before
            if master.redone_rounds > redone:
                self._note(master.model, self._objective(master.model, frozenset()), began)
            elif master.rounds > rounds:
                step, model = self.steps[-1], master.previous_model
                self._note(model, step.loss + self._objective(model, step.contributors), began)
            else:
                continue
            began = self.seconds
        self._note(master.model, self._objective(master.model, frozenset()), began)
        self.curve.redone_rounds = master.redone_rounds

    def _objective(self, model: np.ndarray, without: frozenset[int]) -> float:
        """Return the objective over all partitions but these."""
        rest = [part for number, part in enumerate(self.parts) if number not in without]
        loss = sum(part.scale * part.loss.terms(part.margins(model), part.y)[0] for part in rest)
        return float(loss + 0.5 * np.sum(self.l2 * model * model))

    def _note(self, model: np.ndarray, objective: float, seconds: float) -> None:
        """Note the figures at the model that a round begins with, which is that of the rounds before it."""
        curve = self.curve
        if curve.rounds % _EVERY == 0:
            scores = margins_of(self.data.test_x, model[:-1])[:, 0]
            curve.auprc[curve.rounds] = float(average_precision_score(self.data.test_y, scores))
        curve.objective.append(objective)
        curve.seconds.append(seconds)


def _rules(rule: Rule) -> tuple[DescentRule, StepRule]:
    if rule == "L-BFGS":
        return Lbfgs(), SearchedStep()
    if rule == "line search":
        return SteepestDescent(), SearchedStep()
    return SteepestDescent(), FixedStep(DECAYING_STEP, DECAY) if rule == "decaying step" else FixedStep(CONSTANT_STEP)
