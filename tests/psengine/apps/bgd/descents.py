"""Small descents on generated examples, of which each step is checked against gradients that are computed beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.bgd import ElasticDescent
from proteus_spot.psengine.apps.bgd.driver import ElasticDescentDriver
from proteus_spot.psengine.drivers.interface import Task
from proteus_spot.psengine.single_process import JobAlone, initial

COUNT, INPUTS, L2, MEMORY = 6, 4, 0.01, 4
RULES: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "constant": {"solver": "gradient", "step": 1.0},
        "searched": {"solver": "gradient"},
        "lbfgs": {"memory": MEMORY},
    }
)
PENALTY = np.array([[L2]] * INPUTS + [[0.0]])
EVERYONE = frozenset(range(COUNT))

_RNG = np.random.default_rng(0)
X = _RNG.standard_normal((6 * COUNT, INPUTS)).astype(np.float32)
Y = (X @ _RNG.standard_normal(INPUTS) + 0.5 * _RNG.standard_normal(len(X)) > 0).astype(np.int64)


def loss_of(partitions: Collection[int], model: np.ndarray) -> tuple[float, np.ndarray]:
    """The logistic loss of the examples of some partitions, as a share of the mean of all; and its gradient."""
    rows = [row for partition in sorted(partitions) for row in range(partition, len(Y), COUNT)]
    wide, signs = np.c_[X[rows].astype(np.float64), np.ones(len(rows))], 2.0 * Y[rows, None] - 1.0
    margins = signs * (wide @ model)
    gradient = wide.T @ (-signs / (1.0 + np.exp(margins)))
    return float(np.log1p(np.exp(-margins)).sum()) / len(Y), gradient / len(Y)


def gradient_of(partitions: Collection[int], model: np.ndarray) -> np.ndarray:
    return loss_of(partitions, model)[1]


class CheckedDescent(JobAlone):
    """A descent whose tasks run in a random order, and whose driver is restored from its snapshot after each group.

    Nodes have two partitions. A step is checked before it is made.
    """

    def __init__(self, rule: str, clocks: int | None = 8, seed: int = 0, per_node: int = 2, **params: Any) -> None:
        app = ElasticDescent(INPUTS, len(Y), COUNT, 2, l2=L2, **RULES[rule], **params)
        self.ignores = params.get("missing") == "ignore"
        self.rng = np.random.default_rng(seed)
        parts = [app.prepare({"x": X[p::COUNT], "y": Y[p::COUNT]}) for p in range(COUNT)]

        def driver() -> ElasticDescentDriver:
            self.made = app.driver(clocks)
            return self.made

        super().__init__(app, parts, initial(app, 0), driver=driver, per_node=per_node)
        self.models = [self.shared["weights"]]
        #: Objective and total gradient of the step before.
        self.last: tuple[Any, np.ndarray] | None = None

    @property
    def state(self) -> Any:
        return self.made.snapshot()

    @property
    def queue(self) -> list[tuple[list[int], int]]:
        """The partitions of each entry, and the round of their loss."""
        return [(sorted(entry.partitions), entry.round_number) for entry in self.state.roster.queue]

    def run_one(self) -> bool:
        """Run one task; return whether there was one."""
        ready, group = self.ready(), self.committed
        if not ready:
            return False
        task = ready[int(self.rng.integers(len(ready)))]
        if task.args[0] == "step":
            self._run_step(task)
        else:
            self.run(task)
        self._restore(group)
        return True

    def run_out(self) -> None:
        while self.run_one():
            pass

    def until(self, phase: str, rounds: int) -> None:
        """Run tasks until a phase of a round has begun."""
        while (self.state.phase, self.state.rounds) != (phase, rounds):
            assert self.run_one()

    def lose(self, partitions: Collection[int]) -> None:
        group = self.committed
        super().lose(partitions)
        self._restore(group)

    def bring_back(self, partitions: Collection[int]) -> None:
        group = self.committed
        super().bring_back(partitions)
        self._restore(group)

    def _restore(self, group: int) -> None:
        if self.committed > group:
            self.driver.roll_back(self.committed)
            self._check_stored()

    # -- what is checked ------------------------------------------------------------------------------------------

    def approximation(self, slot: int) -> np.ndarray:
        rows = INPUTS + 1
        return self.shared["approximations"][slot * rows : (slot + 1) * rows]

    def objective(self, state: Any, model: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective of a round and its gradient: losses, approximations without constants, penalty."""
        loss, gradient = loss_of(state.contributors, model)
        linear = sum(
            (self.approximation(entry.number) for entry in state.standing if entry.number is not None),
            np.zeros_like(model),
        )
        whole = loss + float(np.vdot(linear, model)) + 0.5 * float(np.sum(PENALTY * model * model))
        return whole, gradient + linear + PENALTY * model

    def _run_step(self, task: Task) -> None:
        state, model, direction, (_, step, _) = self.state, self.models[-1], self.shared["direction"], task.args[1]
        assert np.array_equal(self.shared["weights"], model), "the step begins where the last one has ended"
        self._check_counts(state)
        value, total = self.objective(state, model)
        if state.pairs and not state.steepest:
            self._check_pair(state, total)
        else:
            np.testing.assert_allclose(direction, -total, atol=1e-11)
        self.run(task)
        self.models.append(self.shared["weights"])
        self.last = (state.contributors, state.standing), total
        np.testing.assert_allclose(self.models[-1], model + step * direction, atol=1e-15)
        if state.search is not None:
            after, gradient = self.objective(state, self.models[-1])
            slope, left = float(np.vdot(total, direction)), float(np.vdot(gradient, direction))
            assert abs(state.search.value - value) < 1e-12
            assert after <= value + 1e-4 * step * slope + 1e-15, "Armijo"
            assert left >= 0.9 * slope - 1e-15, "Wolfe"

    def _check_counts(self, state: Any) -> None:
        """Each partition counts once, by its gradient now or by that at the model before its loss."""
        counted = sorted(state.contributors) + [p for entry in state.standing for p in entry.partitions]
        assert sorted(counted) == sorted(EVERYONE) or self.ignores
        for entry in state.standing:
            if entry.number is not None:
                at_loss = gradient_of(entry.partitions, self.models[entry.round_number - 1])
                np.testing.assert_allclose(self.approximation(entry.number), at_loss, atol=1e-11)
        for slot in EVERYONE - {entry.number for entry in state.roster.queue}:
            assert not self.approximation(slot).any(), "a slot that is free is 0"

    def _check_pair(self, state: Any, total: np.ndarray) -> None:
        np.testing.assert_allclose(self.shared["total"], total, atol=1e-11)
        if state.figures.has_pair:
            assert self.last is not None
            assert self.last[0] == (state.contributors, state.standing), "a pair is of one objective"
            moved, changed = self.models[-1] - self.models[-2], total - self.last[1]
            np.testing.assert_allclose(self.shared[f"moved{state.pairs[-1]}"], moved, atol=1e-11)
            np.testing.assert_allclose(self.shared[f"changed{state.pairs[-1]}"], changed, atol=1e-11)

    def _check_stored(self) -> None:
        """What is stored is the gradient of those that are said to be in it, at the model before."""
        state = self.state
        if state.phase not in ("kept", "approximate", "step") and len(self.models) > 1:
            expected = gradient_of(state.roster.stored, self.models[-2])
            np.testing.assert_allclose(self.shared["stored"], expected, atol=1e-11)
