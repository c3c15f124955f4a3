"""The parts of the core: steps of a clock, examples of a step, places of arrays, settings."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.nets import Nesterov
from proteus_spot.nets.layout import COLUMNS, ArrayLayout, NamedArray
from proteus_spot.nets.sampling import Calendar, Walk
from proteus_spot.psengine.apps.registry import driver_of, resolve
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.single_process import JobAlone, initial
from tests.support import numpy_net

SMALL = f"{numpy_net.__name__}:Small"
PLAIN = f"{numpy_net.__name__}:Plain"


@given(st.integers(1, 9), st.integers(0, 30), st.integers(1, 30))
def test_the_groups_take_all_steps_in_order_and_every_clock_has_as_many(
    local_steps: int, warm_steps: int, clocks: int
) -> None:
    calendar = Calendar(local_steps, warm_steps)
    groups = range(1, calendar.groups(clocks) + 1)
    taken = [step for group in groups for step in calendar.steps(group)]
    assert taken == list(range(clocks * local_steps))
    ends = {calendar.groups(clock) for clock in range(1, clocks + 1)}
    before = 0
    for group in groups:
        steps = calendar.steps(group)
        assert (len(steps) == 1) if group <= warm_steps else (steps.stop % local_steps == 0)
        assert (calendar.clocks(group) - before) == (group in ends), "a clock ends with the group that completes it"
        before = calendar.clocks(group)


def test_a_fifth_of_the_steps_is_warm_by_default_where_the_length_is_known() -> None:
    def warm(**params: Any) -> int:
        return resolve(PLAIN, params).net.calendar.warm_steps

    assert [warm(job_clocks=clocks, local_steps=50) for clocks in (1, 8, 4000)] == [10, 80, 200]
    assert warm() == warm(job_clocks=10, local_steps=1) == warm(job_clocks=10, warm_steps=0) == 0
    passes = {"job_passes": 2.5, "n_examples": 200, "workers": 5, "batch_size": 2, "accumulate": 2}
    assert warm(**passes) == 5, "25 steps of 20 examples"
    assert warm(**passes, job_clocks=1, local_steps=10) == 2, "what ends first"
    assert resolve(PLAIN, {"job_clocks": 8}).net.outer_rule == Nesterov(1, 0.5)
    assert not hasattr(resolve(PLAIN, {}), "driver"), "a group is a clock"


def test_a_driver_counts_clocks_and_ends_the_job_with_the_last() -> None:
    app = resolve(SMALL, {})  # 4 warm steps, 3 steps a clock
    parts = [app.prepare({"x": np.int64(worker)}) for worker in range(5)]
    job = JobAlone(app, parts, initial(app, 0), driver=partial(app.driver, 3))
    seen = []
    while ready := job.ready():
        for task in ready:
            job.run(task)
        seen.append((job.committed, job.driver.clock))
    assert seen == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 3)]
    assert (job.driver.clocks, job.driver.end) == (3, (6, ""))
    job.driver.roll_back(6)
    assert (job.driver.clock, job.driver.end) == (3, (6, "")), "a job that goes on at its end"


@pytest.mark.parametrize(
    ("params", "lines"),
    [
        ({}, ["a fifth of the job's steps, at most 200, is synchronous: a machine reads and pushes 15.4 kB in each"]),
        ({"warm_steps": 4}, ["the first 4 steps are synchronous: a machine reads and pushes 15.4 kB in each"]),
        ({"warm_steps": 0}, []),
        ({"local_steps": 1}, []),
    ],
)
def test_a_check_says_what_warm_steps_move(params: dict[str, Any], lines: list[str]) -> None:
    app = resolve(PLAIN, params)
    seconds = iter(range(10))
    notes = app.describe({"x": np.int64(0)}, lambda: float(next(seconds)))
    assert [note.partition("; ")[0] for note in notes if "synchronous" in note] == lines


@given(st.integers(1, 20), st.lists(st.integers(1, 9), min_size=1, max_size=20))
@settings(max_examples=50)
def test_a_walk_takes_each_example_once_an_epoch_however_it_is_cut(examples: int, batches: list[int]) -> None:
    walk = Walk(examples, seed=1, partition=2)
    taken, first = [], 0
    for count in batches:
        taken += walk.take(first, count).tolist()
        first += count
    assert Walk(examples, 1, 2).take(0, first).tolist() == taken
    for epoch in range(first // examples):
        assert sorted(taken[epoch * examples : (epoch + 1) * examples]) == list(range(examples))


def test_walks_differ_by_seed_partition_and_epoch() -> None:
    orders = [
        Walk(50, *key).take(first, 50).tolist() for key, first in (((0, 0), 0), ((1, 0), 0), ((0, 1), 0), ((0, 0), 50))
    ]
    assert len({tuple(order) for order in orders}) == 4


def test_arrays_lie_in_flat_tables_by_kind_and_type() -> None:
    arrays = {
        "a": np.arange(300, dtype=np.float32).reshape(30, 10),
        "b": np.float32(7),
        "c": np.arange(3.0),
        "mean": np.ones(2, np.float32),
        "seen": np.int64(5),
    }
    layout = ArrayLayout(
        [
            NamedArray("a", "parameters", (30, 10)),
            NamedArray("b", "parameters", ()),
            NamedArray("c", "parameters", (3,), "float64"),
            NamedArray("mean", "buffers", (2,)),
            NamedArray("seen", "counts", (), "int64"),
        ]
    )
    outer = Nesterov(0.7, 0.9)
    tables = {table.name: table for table in layout.tables(outer)}
    assert {name: (table.n_rows, table.dtype) for name, table in tables.items()} == {
        "parameters": (2, "float32"),
        "parameters.float64": (1, "float64"),
        "buffers": (1, "float32"),
        "counts": (1, "int64"),
    }
    assert [name for name, table in tables.items() if table.rule == outer] == ["parameters", "parameters.float64"]
    flat = layout.flat(arrays)
    assert all(rows.shape[1] == COLUMNS for rows in flat.values())
    spec = tables["parameters"]
    for low, high in ((0, 1), (1, 2), (0, 2)):
        np.testing.assert_array_equal(layout.rows_of(spec, arrays, low, high), flat["parameters"][low:high])
    for entry, array in layout.named(flat):
        np.testing.assert_array_equal(array, arrays[entry.name])


def test_settings_come_from_the_class_and_from_the_job() -> None:
    net = resolve(SMALL, {"local_steps": 9, "outer": {"lr": 1, "momentum": 0.5}, "job_seed": 4, "n_words": 3}).net
    assert (net.local_steps, net.workers, net.job_seed, net.outer) == (9, 5, 4, Nesterov(1, 0.5))


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"worker": 3}, "Small has no setting 'worker'"),
        ({"trainer": 3}, "Small has no setting 'trainer'"),
        ({"workers": 0}, "workers is 0: want a whole number from 1"),
        ({"local_steps": 2.5}, "local_steps is 2.5: want a whole number from 1"),
        ({"outer": 0.7}, "outer is 0.7: want Nesterov(lr, momentum)"),
        ({"outer": {"lr": 1, "momentum": 1}}, "Nesterov: momentum is 1; want a number from 0 on and below 1"),
        ({"moments": "keeps"}, "moments is 'keeps': want keep or reset"),
        ({"pushes": "fp16"}, "pushes is 'fp16': want fp32 or bf16"),
        ({"keep": "first"}, "keep is 'first': want last or best"),
        ({"nan": "allow"}, "nan is 'allow': want fail or skip"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_one_line(params: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as refused:
        resolve(SMALL, params)
    assert line in str(refused.value)


def test_a_job_of_another_number_of_partitions_is_refused() -> None:
    app = resolve(SMALL, {})
    with pytest.raises(JobError, match="has 16 partitions, and Small 5 workers"):
        app.executor({"x": np.int64(0)}, 0, 16)


def test_passes_are_counted_in_examples_also_through_warm_steps() -> None:
    app = resolve(SMALL, {"n_examples": 100})  # a step takes 20
    assert [app.passes_after(group) for group in (0, 1, 4, 5, 6)] == pytest.approx([0.0, 0.2, 0.8, 1.2, 1.8])
    assert resolve(SMALL, {}).passes_after(3) is None
    config = JobConfig("job", SMALL, {"n_examples": 100}, n_partitions=5, passes=2)
    assert driver_of(config).passes(6, 0) == pytest.approx(1.8)  # type: ignore[attr-defined]
