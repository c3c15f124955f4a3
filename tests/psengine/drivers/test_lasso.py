"""The example docs/examples/lasso.py: Litz's dynamic scheduling, by a driver that uses public names alone."""

import ast
import runpy
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model

from proteus_spot.psengine.drivers.interface import Done, Driver, Task

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "lasso.py"
EXAMPLES, INPUTS, PARTITIONS, ALPHA, CORRELATION = 300, 90, 4, 0.05, 0.2


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Return examples of which each third of the inputs is nearly another one, and targets that ten inputs make."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(EXAMPLES, INPUTS // 3))
    x = np.hstack([base, base + 0.3 * rng.normal(size=base.shape), rng.normal(size=base.shape)])
    weights = np.zeros(INPUTS)
    weights[rng.choice(INPUTS, 10, replace=False)] = 3 * rng.normal(size=10)
    return x, x @ weights + 0.1 * rng.normal(size=EXAMPLES)


class Loop:
    """A dispatcher that runs each group at once; after each, driver and partitions begin anew from their snapshots."""

    def __init__(self, app: Any, x: np.ndarray, y: np.ndarray) -> None:
        self.weights = np.zeros((INPUTS, 1))
        self.groups: list[list[Task]] = [[]]
        self.reason = ""
        slices = np.array_split(np.arange(EXAMPLES), PARTITIONS)
        data = [app.prepare({"x": x[rows], "y": y[rows]}) for rows in slices]
        executors = [app.executor(part, number, PARTITIONS) for number, part in enumerate(data)]
        driver: Driver = app.driver()
        driver.start(self, PARTITIONS, 0)
        while not self.reason:
            group = len(self.groups) - 1
            for task in reversed(self.groups[group]):
                result, loss, examples = executors[task.partition].run(task.args, self, np.random.default_rng(0))
                driver.completed(self, Done(task, result, examples, loss))
            driver.committed(self, group)
            state, states = driver.snapshot(), [executor.snapshot() for executor in executors]
            driver = app.driver()
            driver.restore(state)
            executors = [app.executor(part, number, PARTITIONS) for number, part in enumerate(data)]
            for executor, of_executor in zip(executors, states, strict=True):
                executor.restore(of_executor)
        self.driver: Any = driver

    def add(self, table: str, delta: np.ndarray, rows: np.ndarray) -> None:
        assert table == "weights"
        self.weights[rows] += delta

    def dispatch(self, task: Task) -> None:
        self.groups += [[]] if task.group == len(self.groups) else []
        self.groups[task.group].append(task)

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        assert [task.partition for task in self.groups[group]] == list(range(PARTITIONS))

    def evaluate(self, group: int) -> None: ...

    def finish(self, group: int, reason: str = "") -> None:
        self.reason = reason


@pytest.fixture(scope="module")
def trained() -> tuple[Loop, np.ndarray, np.ndarray]:
    x, y = problem()
    app = runpy.run_path(str(EXAMPLE))["Lasso"](INPUTS, EXAMPLES, alpha=ALPHA, correlation=CORRELATION)
    return Loop(app, x, y), x, y


def test_it_imports_the_public_names_alone() -> None:
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(EXAMPLE.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported == {"__future__", "collections.abc", "typing", "numpy", "numpy.typing", "proteus_spot"}


def test_it_ends_at_the_solution_of_the_reference(trained: tuple[Loop, np.ndarray, np.ndarray]) -> None:
    loop, x, y = trained
    reference = linear_model.Lasso(alpha=ALPHA, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(x, y).coef_
    np.testing.assert_allclose(loop.weights[:, 0], reference, atol=1e-5)
    assert 5 < np.count_nonzero(reference) < INPUTS / 2
    assert loop.reason == "no coordinate changes by more than 1e-07"


def test_no_two_coordinates_of_a_round_are_correlated(trained: tuple[Loop, np.ndarray, np.ndarray]) -> None:
    loop, x, _ = trained
    norms = np.linalg.norm(x, axis=0)
    cosines = np.abs(x.T @ x / np.outer(norms, norms)) - np.eye(INPUTS)
    rounds = [tasks[0].args["now"] for tasks in loop.groups[1:]]
    assert max(cosines[np.ix_(now, now)].max(initial=0.0) for now in rounds) <= CORRELATION
    assert np.mean([len(now) for now in rounds]) > 3, "several at once, all the same"


def test_coordinates_that_have_converged_are_computed_less_often(trained: tuple[Loop, np.ndarray, np.ndarray]) -> None:
    loop, x, y = trained
    looked_at, ends = loop.driver.looked_at, loop.driver.weights == 0
    assert 5 * looked_at[ends].mean() < looked_at[~ends].mean()
    assert 3 * looked_at.sum() < cyclic_updates(x, y)


def cyclic_updates(x: np.ndarray, y: np.ndarray) -> int:
    """Return how often coordinates are computed one after the other until none changes by more than the tolerance."""
    weights, residuals, squares = np.zeros(INPUTS), y.copy(), (x**2).sum(axis=0)
    for sweep in range(1, 10_000):
        most = 0.0
        for j in range(INPUTS):
            aim = (x[:, j] @ residuals + squares[j] * weights[j]) / EXAMPLES
            after = np.sign(aim) * max(abs(aim) - ALPHA, 0.0) * EXAMPLES / squares[j]
            residuals -= x[:, j] * (after - weights[j])
            most, weights[j] = max(most, abs(after - weights[j])), after
        if most <= 1e-7:
            return sweep * INPUTS
    raise AssertionError("it does not converge")
