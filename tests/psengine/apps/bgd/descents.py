"""Small descents on generated examples, with every partition's gradient recomputed beside them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.bgd.directions import DescentRule, SteepestDescent
from proteus_spot.psengine.apps.bgd.local_cluster import LocalCluster
from proteus_spot.psengine.apps.bgd.losses import linear_loss
from proteus_spot.psengine.apps.bgd.master import DescentStep, ElasticMaster
from proteus_spot.psengine.apps.bgd.messages import Request, Vanished
from proteus_spot.psengine.apps.bgd.partition import LinearPartition
from proteus_spot.psengine.apps.bgd.steps import SearchedStep, StepRule

L2 = 0.01


def partitions(count: int, seed: int = 0, loss: str = "logistic") -> list[LinearPartition]:
    rng = np.random.default_rng(seed)
    n, inputs = 6 * count, 4
    x = rng.standard_normal((n, inputs)).astype(np.float32)
    z = x @ rng.standard_normal(inputs) + 0.5 * rng.standard_normal(n)
    y = z if loss == "squared" else (z > 0).astype(np.int64)
    return [LinearPartition(x[p::count], y[p::count], linear_loss(loss, 2), 1 / n) for p in range(count)]


class Descent:
    """A master and a cluster, which are checked at each loss and at each step."""

    def __init__(
        self,
        count: int,
        step: StepRule | None = None,
        direction: DescentRule | None = None,
        **options: Any,
    ) -> None:
        self.parts = partitions(count)
        self.ignores = options.get("missing") == "ignore"
        self.steps: list[DescentStep] = []
        self.losses: list[Vanished] = []
        self.models = [np.zeros((5, 1))]
        self.cluster = LocalCluster(self.parts)
        self.requests: list[Request] = []
        self.master = ElasticMaster(
            count,
            self.models[0],
            direction or SteepestDescent(),
            step or SearchedStep(),
            l2=L2,
            on_step=self.steps.append,
            on_loss=self.losses.append,
            **options,
        )

    def gradient(self, indices: Sequence[int] | frozenset[int], model: np.ndarray) -> np.ndarray:
        return sum((self.parts[p].gradient(model)[1] for p in indices), np.zeros_like(model))

    def objective(self, step: DescentStep, model: np.ndarray) -> float:
        """The objective of a step at any model: losses, approximations without constants, penalty."""
        loss = sum(self.parts[p].gradient(model)[0] for p in step.contributors)
        linear = sum(float(np.vdot(entry.gradient, model)) for entry in step.standing if entry.gradient is not None)
        return loss + linear + 0.5 * L2 * float(np.vdot(model, model))

    def answer(self, vanishing: Sequence[int] | frozenset[int] = ()) -> Request | None:
        """Send one request, during which some vanish; check what became of it."""
        master = self.master
        request = master.request(self.cluster.present)
        if request is None:
            return None
        self.requests.append(request)
        stored, seen = master.stored_gradient, len(self.losses)
        master.receive(self.cluster.answer(request, frozenset(vanishing) & self.cluster.present))
        if len(self.steps) == len(self.models):
            self.models.append(master.model)
            self._check_step(self.steps[-1])
        for entry in self.losses[seen:]:
            self._check_loss(entry, stored)
        return request

    def _check_loss(self, entry: Vanished, stored: np.ndarray | None) -> None:
        if entry.round_number == 0:
            assert entry.gradient is None
            return
        before = self.models[entry.round_number - 1]
        np.testing.assert_allclose(entry.gradient, self.gradient(entry.partitions, before), atol=1e-12)
        survivors = self.master.stored_gradient
        assert survivors is not None
        assert stored is not None
        np.testing.assert_allclose(entry.gradient + survivors, stored, atol=1e-12)
        assert self.master.previous_model is before
        np.testing.assert_allclose(survivors, self.gradient(self.master.roster.stored, before), atol=1e-12)

    def _check_step(self, step: DescentStep) -> None:
        everyone = set(range(len(self.parts)))
        counted = sorted(step.contributors) + [p for entry in step.standing for p in sorted(entry.partitions)]
        assert sorted(counted) == sorted(everyone) or self.ignores
        model = self.models[step.round_number]
        expected = self.gradient(step.contributors, model) + L2 * model
        for entry in step.standing:
            if entry.round_number:
                expected = expected + self.gradient(entry.partitions, self.models[entry.round_number - 1])
        np.testing.assert_allclose(step.gradient, expected, atol=1e-12)
        assert abs(step.objective - self.objective(step, model)) < 1e-12

    def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            assert self.answer() is not None
