"""k-means against the textbook, step by step: sums, numbers, clusters that lose their last example, first centres."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.apps.base import Predicts, ReadsRows
from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.apps.kmeans.app import KMeans
from proteus_spot.psengine.apps.kmeans.seeding import spread_out
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.sharding import Arrays

CORNERS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])


def clouds(n: int = 400, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (CORNERS[rng.integers(0, 4, n)] + rng.normal(0, 0.5, (n, 2))).astype(np.float32)


def sparse(x: np.ndarray) -> dict[str, np.ndarray]:
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return Csr(x[rows, columns], columns.astype(np.int32), indptr, x.shape[1]).arrays()


def parts_of(app: KMeans, x: np.ndarray, n_parts: int, form: Any = lambda x: {"x": x}) -> list[Any]:
    cuts = np.array_split(np.arange(len(x)), n_parts)
    return [app.prepare(form(x[cut]) | {"first": np.asarray(cut[0])}) for cut in cuts]


def clock_by_clock(app: KMeans, parts: list[Any], clocks: int) -> tuple[list[Arrays], list[float]]:
    seen: list[Arrays] = []
    losses: list[float] = []

    def note(_: int, tables: Arrays, loss: float) -> None:
        seen.append(tables)
        losses.append(loss)

    train_alone(app, parts, initial(app, 0, 3), clocks, note)
    return seen, losses


def squares(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    distances: np.ndarray = ((x[:, None].astype(np.float64) - centres) ** 2).sum(axis=2)
    return distances


def textbook(x: np.ndarray, centres: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return the last assignment and the centres after it, and the inertia before each step."""
    losses = []
    for _ in range(steps):
        distances = squares(x, centres)
        nearest = distances.argmin(axis=1)
        losses.append(float(distances.min(axis=1).sum()))
        centres = np.array([x[nearest == c].mean(axis=0, dtype=float) if (nearest == c).any() else centres[c]
                            for c in range(len(centres))])  # fmt: skip
    return nearest, centres, losses


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 60), d=st.integers(1, 4), n_parts=st.integers(1, 7), share=st.floats(0, 1), grid=st.booleans(),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_every_clock_is_a_step_of_the_textbook(
    n: int, d: int, n_parts: int, share: float, grid: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.integers(0, 3, (n, d)) if grid else rng.standard_normal((n, d))).astype(np.float32)  # grid: many the same
    app = KMeans(d, n, k=1 + int(share * (n - 1)), init_seed=seed)
    parts = parts_of(app, x, min(n_parts, n))
    seen, losses = clock_by_clock(app, parts, 5)
    first = seen[0]["centres"]
    assert (seen[0]["counts"] == [0, 1]).all()
    assert all((squares(x, centre[None]) == 0).any() for centre in first)  # each is an example
    for clock in range(2, 6):
        tables = seen[clock - 1]
        nearest, centres, expected = textbook(x, first, clock - 1)
        held = tables["assignments"][:, 0] - 1
        assert losses[clock - 1] == pytest.approx(expected[-1], rel=1e-9, abs=1e-9)
        assert (np.bincount(held, minlength=app.k) == tables["counts"][:, 0]).all()
        for cluster in range(app.k):
            expected_sum = x[held == cluster].sum(axis=0, dtype=float)
            np.testing.assert_allclose(tables["sums"][cluster], expected_sum, atol=1e-9)
        if grid:
            return  # ties: what follows need not be the same
        assert (held == nearest).all()
        np.testing.assert_allclose(app._centres(tables)[0], centres, atol=1e-9)
    assert all(after <= before + 1e-9 for before, after in pairwise(losses[1:]))


def test_it_ends_where_scikit_learn_does() -> None:
    from sklearn import cluster

    x = np.random.default_rng(1).standard_normal((900, 5)).astype(np.float32)
    app = KMeans(5, 900, k=7, init_seed=1)
    seen, losses = clock_by_clock(app, parts_of(app, x, 4), 60)
    peer = cluster.KMeans(7, init=seen[0]["centres"], n_init=1, algorithm="lloyd", max_iter=500, tol=0)
    peer.fit(x.astype(np.float64))
    assert (seen[-1]["assignments"][:, 0] - 1 == peer.labels_).all()
    assert losses[-1] == pytest.approx(peer.inertia_, rel=1e-9)
    assert (app.predict(seen[-1], {"x": x}) == peer.predict(x.astype(np.float64))).all()


def test_a_cluster_that_loses_its_last_example_stays_where_it_was_and_may_get_others() -> None:
    """The middle one holds 0 and 10, which have come to be nearer to others; when these move, one comes back to it."""
    app = KMeans(1, 5, k=3)
    x = np.array([[0.0], [10.0], [-2.0], [12.0], [4.0]], np.float32)
    (part,) = parts_of(app, x, 1)
    tables = initial(app, 0)
    tables["sums"][:, 0] = [-2.0, 10.0, 12.0]
    tables["counts"][:] = [[1, 1], [2, 1], [1, 1]]
    tables["assignments"][:4, 0] = [2, 2, 1, 3]
    tables["centres"][:, 0] = [-1.0, 4.9, 11.0]
    x_without = app.prepare({"x": x[:4], "first": np.asarray(0)})
    work = app.run(x_without, tables | {"assignments": tables["assignments"][:4]}, 7)
    after = {name: tables[name] + work.updates[name] for name in ("sums", "counts", "centres")}
    assert after["counts"][:, 0].tolist() == [2, 0, 2]
    assert app._centres(after)[0][:, 0].tolist() == [-1.0, 5.0, 11.0]  # not 0, and not where it was two clocks ago
    again = app.run(part, after | {"assignments": np.array([[1], [3], [1], [3], [0]], np.int32)}, 8)
    assert again.updates["counts"][:, 0].tolist() == [0, 1, 0]


def test_first_centres_lie_in_all_clouds() -> None:
    """Four rows at random would do that one time in ten."""
    missed = 0
    for seed in range(20):
        app = KMeans(2, 400, k=4, init_seed=seed)
        seen, _ = clock_by_clock(app, parts_of(app, clouds(seed=seed), 4), 1)
        missed += len(set(squares(seen[0]["centres"], CORNERS).argmin(axis=1))) < 4
    assert missed == 0


def test_more_clusters_than_the_first_partition_has_rows() -> None:
    x = np.arange(10, dtype=np.float32)[:, None]
    app = KMeans(1, 10, k=8)
    seen, losses = clock_by_clock(app, parts_of(app, x, 4), 6)  # of 3, 3, 2 and 2 rows
    assert sorted(seen[0]["centres"][:, 0]) == list(range(8))
    assert seen[0]["centres"][3:, 0].tolist() == [3, 4, 5, 6, 7]
    assert losses[1] == 5.0
    assert losses[-1] < 3.0


def test_duplicates_leave_clusters_empty_and_nothing_breaks() -> None:
    x = np.ones((6, 2), np.float32)
    seen, losses = clock_by_clock(app := KMeans(2, 6, k=3), parts_of(app, x, 2), 4)
    assert sorted(seen[-1]["counts"][:, 0]) == [0, 0, 6]
    assert np.isfinite(seen[-1]["sums"]).all()
    assert losses == [0, 0, 0, 0]


def test_compressed_rows_come_to_the_same() -> None:
    x = np.where(np.random.default_rng(0).random((90, 30)) < 0.2, 1.0, 0.0).astype(np.float32)
    app = KMeans(30, 90, k=5)
    dense, compressed = (clock_by_clock(app, parts_of(app, x, 3, form), 6) for form in (lambda x: {"x": x}, sparse))
    assert dense[1] == compressed[1]
    assert all(dense[0][-1][name].tobytes() == table.tobytes() for name, table in compressed[0][-1].items())
    heldout = clouds()[:30].repeat(15, axis=1)
    tables = dense[0][-1]
    wanted = squares(heldout, app._centres(tables)[0])
    assert app.evaluate(tables, {"x": heldout, "y": heldout[:, 0]}) == {
        "mean_squared_distance": pytest.approx(wanted.min(axis=1).mean())
    }
    assert (app.predict(tables, sparse(heldout)) == wanted.argmin(axis=1)).all()


def test_a_task_repeats_itself_bit_by_bit_and_writes_to_nothing() -> None:
    app = KMeans(2, 400, k=4)
    part = parts_of(app, clouds(), 2)[1]
    seen, _ = clock_by_clock(app, parts_of(app, clouds(), 2), 3)
    params = seen[1] | {"assignments": seen[1]["assignments"][part.rows]}
    for table in params.values():
        table.flags.writeable = False
    one, two = (app.run(part, params, 3) for _ in range(2))
    assert one.loss_sum == two.loss_sum
    assert {name: table.tobytes() for name, table in one.updates.items()} == {
        name: table.tobytes() for name, table in two.updates.items()
    }
    assert {name: table.dtype for name, table in one.updates.items()} == {
        table.name: table.dtype for table in app.tables() if table.name in one.updates
    }
    assert "centres" not in one.updates  # the first partition's to write


def test_without_centres_yet_nothing_is_moved() -> None:
    """As under staleness, where a partition may be a clock ahead of the one that draws them."""
    app = KMeans(2, 400, k=4)
    part = parts_of(app, clouds(), 2)[1]
    work = app.run(part, initial(app, 0) | {"assignments": np.zeros((200, 1), np.int32)}, 2)
    x = clouds()[200:].astype(np.float64)
    assert work.updates == {}
    assert work.loss_sum == pytest.approx(((x - x.mean(axis=0)) ** 2).sum())
    some = initial(app, 0) | {"assignments": np.zeros((200, 1), np.int32)}
    some["centres"][2], some["counts"][2, 1] = (100, 100), 1  # far off, and yet the only one there is
    assert (app.run(part, some, 2).updates["assignments"] == 3).all()


@given(st.integers(1, 30), st.integers(0, 99))
def test_rows_that_lie_apart_are_distinct_as_long_as_there_are_any(n: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((n, 3))
    chosen = spread_out(x, n, np.random.default_rng(seed))
    assert sorted(chosen) == list(range(n))
    assert (spread_out(x, n, np.random.default_rng(seed)) == chosen).all()


def test_it_is_built_in_and_says_what_it_wants() -> None:
    app = resolve("kmeans", {"n_inputs": 2, "n_classes": 3, "n_examples": 9, "k": 2})
    assert isinstance(app, ReadsRows)
    assert isinstance(app, Predicts)
    assert [table.name for table in app.tables() if table.own] == ["assignments"]


@pytest.mark.parametrize("k", [0, -1, 2.5, "8", True])
def test_a_number_of_clusters_that_cannot_be_is_told(k: Any) -> None:
    with pytest.raises(JobError, match=r"k is .*; want a whole number from 1"):
        resolve("kmeans", {"n_inputs": 2, "n_examples": 9, "k": k})


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y": np.zeros(2)}, "no array 'x'"),
        ({"x": np.zeros((2, 3)), "first": np.asarray(0)}, r"x \(2, 3\): wanted \(n, 2\)"),
        ({"x": np.zeros((2, 2))}, "does not say where it begins"),
        ({"x": np.zeros((2, 2)), "first": np.asarray(8)}, "rows 8 to 10: the training set has 9"),
        ({"x": np.zeros((2, 2)), "first": np.asarray(0)}, "k is 10, and there are 9 examples"),
    ],
)
def test_bad_data_are_told(arrays: dict[str, np.ndarray], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KMeans(2, 9, k=10 if "k is" in says else 3).prepare(arrays)
