from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from proteus_spot.infra.datasets.ratings import read
from proteus_spot.psengine.apps.base import Predicts, ReadsRows
from proteus_spot.psengine.apps.mf.app import MatrixFactorization, Strip
from proteus_spot.psengine.apps.mf.model_parallel import ModelParallelFactorization, StripExecutor
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.row_sets import RowBlock
from proteus_spot.psengine.worker.task_parameters import TaskParameters

PARTITIONS = 3


def made(n_users: int = 40, n_items: int = 30, n: int = 500, parts: int = PARTITIONS) -> list[dict[str, np.ndarray]]:
    """Ratings as partitions have them; user and item bounds are not even."""
    rng = np.random.default_rng(1)
    pairs = rng.choice(n_users * n_items, n, replace=False)
    users, items = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    values = rng.integers(1, 6, n).astype(np.float32)
    user_bounds = np.array([0, *sorted(rng.choice(np.arange(1, n_users), parts - 1, replace=False)), n_users])
    item_bounds = np.array([0, *sorted(rng.choice(np.arange(1, n_items), parts - 1, replace=False)), n_items])
    return [
        {
            "users": users[mine],
            "items": items[mine],
            "values": values[mine],
            "partition": np.array([part]),
            "user_bounds": user_bounds,
            "item_bounds": item_bounds,
        }
        for part in range(parts)
        for mine in [(user_bounds[part] <= users) & (users < user_bounds[part + 1])]
    ]


def app(**more: Any) -> MatrixFactorization:
    given = {"n_users": 40, "n_items": 30, "n_partitions": PARTITIONS, "rating_mean": 3.0, "rating_sd": 1.5, "rank": 5}
    return MatrixFactorization(**{**given, **more})


def visits(of: MatrixFactorization, strips: list[Strip], clock: int) -> Iterator[tuple[int, int, float]]:
    """Yield user, item and standardised rating of each visit of a clock, by the numbers of the whole set."""
    for strip in strips:
        rows: Any = of.rows(strip, clock)
        users, items = rows["users"].start, rows["items"].start
        block = (strip.partition + clock) % PARTITIONS
        for n in range(strip.starts[block], strip.starts[block + 1]):
            yield strip.user[n] + users, strip.item[n] + items, float(strip.value[n])


def test_a_pass_visits_each_rating_once_and_no_row_is_in_two_tasks_of_a_clock() -> None:
    of, parts = app(), made()
    strips = [of.prepare(part) for part in parts]
    assert isinstance(of, ReadsRows)
    seen = []
    for clock in range(1, PARTITIONS + 1):
        for table in ("users", "items"):
            taken = np.zeros(40, int)
            for strip in strips:
                taken[of.rows(strip, clock)[table]] += 1
            assert taken.max() == 1
        seen += list(visits(of, strips, clock))
    given = [
        (u, i, (v - np.float32(3.0)) / np.float32(1.5))
        for part in parts
        for u, i, v in zip(part["users"], part["items"], part["values"], strict=True)
    ]
    assert sorted(seen) == sorted(given)


@pytest.mark.parametrize("schedule", ["adaptive", "decay"])
def test_the_partitions_together_are_serial_descent(schedule: str) -> None:
    """Against a loop in double precision that visits rating after rating and knows no partitions."""
    of = app(schedule=schedule, step=0.05, decay=0.5, regularisation=0.1, spread=0.5)
    strips = [of.prepare(part) for part in made()]
    start = initial(of, 3)
    clocks, losses = 2 * PARTITIONS, []
    end = train_alone(of, strips, start, clocks, lambda clock, tables, loss: losses.append(loss))
    p, q = (start[name].astype(float) for name in ("users", "items"))
    for clock in range(1, clocks + 1):
        step, loss = 0.05 / (1 + 0.5 * ((clock - 1) // PARTITIONS)), 0.0
        for u, i, value in visits(of, strips, clock):
            error = value - p[u, :-1] @ q[i, :-1]
            loss += error**2
            slope_p, slope_q = error * q[i, :-1] - 0.1 * p[u, :-1], error * p[u, :-1] - 0.1 * q[i, :-1]
            if schedule == "adaptive":
                step_p, step_q = 0.05 / np.sqrt(p[u, -1]), 0.05 / np.sqrt(q[i, -1])
                p[u, -1] += np.mean(slope_p**2)
                q[i, -1] += np.mean(slope_q**2)
            else:
                step_p = step_q = step
            p[u, :-1] += step_p * slope_p
            q[i, :-1] += step_q * slope_q
        assert losses[clock - 1] == pytest.approx(loss * 1.5**2, rel=1e-4)
    assert np.allclose(end["users"], p, atol=2e-5)
    assert np.allclose(end["items"], q, atol=2e-5)


def test_the_same_arguments_give_the_same_bits_and_parameters_are_not_written_to() -> None:
    of = app()
    strips = [[of.prepare(part) for part in made()] for _ in range(2)]
    start = initial(of, 0)
    before = {name: rows.copy() for name, rows in start.items()}
    for rows in start.values():
        rows.flags.writeable = False
    first, again = (train_alone(of, some, start, 4) for some in strips)
    for name in start:
        assert first[name].tobytes() == again[name].tobytes() != before[name].tobytes()
        assert start[name].tobytes() == before[name].tobytes()


@pytest.mark.parametrize("more", [{}, {"schedule": "decay", "step": 0.05, "decay": 0.05}])
def test_it_finds_the_factors_under_the_noise(more: dict[str, Any]) -> None:
    data = read("ratings", 4)
    sizes: dict[str, Any] = {name: size for name, size in data.sizes.items() if name != "n_examples"}
    of = MatrixFactorization(**sizes, rank=8, **more)
    strips, held = [of.prepare(part) for part in data.parts(0)], data.heldout()
    losses: list[float] = []
    end = train_alone(of, strips, initial(of, 0), 4 * 25, lambda clock, tables, loss: losses.append(loss))
    figures = of.evaluate(end, held)
    # The noise is 0.4 and ratings are rounded to half points, which is 0.14 more; always saying the mean has error
    # 0.85.
    assert figures["rmse"] < 0.58
    assert figures["mae"] < figures["rmse"]
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])


def test_predictions_are_ratings_and_the_figures_are_of_them() -> None:
    of = app()
    assert isinstance(of, Predicts)
    assert of.predicts == "rating"
    params = initial(of, 1)
    users, items = np.array([3, 39, 3]), np.array([0, 29, 7])
    told = of.predict(params, {"users": users, "items": items})
    want = [
        3.0 + 1.5 * float(params["users"][u, :-1] @ params["items"][i, :-1]) for u, i in zip(users, items, strict=True)
    ]
    assert told == pytest.approx(want, rel=1e-5)
    figures = of.evaluate(params, {"users": users, "items": items, "values": told + np.float32([1, -1, 0])})
    assert figures == pytest.approx({"rmse": np.sqrt(2 / 3), "mae": 2 / 3}, rel=1e-4)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"rank": 0}, "rank is 0; want a whole number from 1"),
        ({"rank": 2.5}, "rank is 2.5"),
        ({"step": 0}, "step is 0; want a number above 0"),
        ({"step": "fast"}, "step is 'fast'"),
        ({"regularisation": -1}, "regularisation is -1; want a number from 0"),
        ({"schedule": "cosine"}, "want one of adaptive, decay"),
        ({"ranks": 3}, "unexpected keyword argument 'ranks'"),
    ],
)
def test_parameters_that_cannot_be_are_refused(params: dict[str, Any], told: str) -> None:
    sizes = {"n_users": 4, "n_items": 4, "n_partitions": 2, "n_examples": 9}
    with pytest.raises(JobError, match=r"mf.*app_params") as caught:
        resolve("mf", {**sizes, **params})
    assert told in str(caught.value)


def test_data_that_were_cut_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match="n_partitions is 4, and the data are cut into 3 parts"):
        app(n_partitions=4).prepare(made()[0])


def test_an_executor_may_go_elsewhere_before_its_first_task_and_after_it() -> None:
    """Model-parallel: users are drawn by the first task, from its random numbers."""
    of = resolve("mf", {"n_users": 40, "n_items": 30, "n_partitions": PARTITIONS, "rank": 5, "parallel": "model"})
    assert isinstance(of, ModelParallelFactorization)
    data, items = of.prepare(made()[1]), initial(of, 0)["items"]
    specs = {"items": of.tables()[1]}

    def run(executor: StripExecutor, group: int) -> bytes:
        params = TaskParameters(group, specs, {}, {"items": RowBlock(None, items)}, lambda *_: pytest.fail("not read"))
        executor.run(group % PARTITIONS, params, np.random.default_rng(group))
        return executor.snapshot()["users"].tobytes()

    stays = of.executor(data, 1, PARTITIONS)
    for group in (1, 2):
        moves = of.executor(data, 1, PARTITIONS)
        moves.restore(stays.snapshot())
        before = {name: rows.tobytes() for name, rows in stays.snapshot().items()}
        kept = stays.snapshot()
        assert run(stays, group) == run(moves, group) != before.get("users")
        assert {name: rows.tobytes() for name, rows in kept.items()} == before, "a state is never written to"
