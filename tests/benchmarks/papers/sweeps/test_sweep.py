"""The inputs and figures of benchmark `sweep`, on generated prices and trials."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.records import write_record
from proteus_spot.benchmarks.papers.sweeps.sampling import RecordedSampler, run_sampled
from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.simulation.single_spot import SingleChoice
from proteus_spot.benchmarks.papers.sweeps.sweep_field import (
    LEAVES_S,
    SweepField,
    applications,
    roughness,
    stretched,
    sweep_field,
    wholly_divided,
)
from proteus_spot.benchmarks.papers.sweeps.sweep_pictures import draw_approaches, draw_thetas
from proteus_spot.benchmarks.papers.sweeps.sweep_runs import run_singles, run_sweeps

RECORDS = [stretched(generate_trials(seed, trials=6, steps=20), 2.0) for seed in range(2)]


@pytest.fixture(scope="module")
def field() -> SweepField:
    return sweep_field(None)


def test_the_table_is_fitted_before_the_sweeps_begin_and_the_starts_leave_them_time(field: SweepField) -> None:
    starts = field.starts(5)
    assert field.fit_from_s < field.prices.from_s <= starts[0]
    assert starts == sorted(starts)
    assert starts[-1] <= field.prices.until_s - LEAVES_S
    assert set(field.prices.markets) <= set(field.table.markets)
    assert "generated prices" in field.note


def test_rough_markets_are_those_with_the_most_evictions_in_the_fitted_weeks(field: SweepField) -> None:
    rough = sweep_field(None, rough=True)
    others = set(field.prices.markets) - set(rough.prices.markets)
    assert len(rough.prices.markets) == 3  # a third: none of the generated ones is rough
    assert min(roughness(field.table, market) for market in rough.prices.markets) >= max(
        roughness(field.table, market) for market in others
    )


def test_recorded_trials_come_before_generated_ones_and_the_median_one_takes_the_hours(tmp_path: Path) -> None:
    generated, note = applications(tmp_path, hours=3.0)
    assert (len(generated), note) == (6, "generated trials, 3 h for the median one on 2 vCPUs")
    write_record(tmp_path / "a.npz", generate_trials(9, trials=5, steps=10))
    (one,), note = applications(tmp_path, hours=3.0)
    assert note.startswith("recorded trials")
    on_two = one.seconds_per_step(np.array([2]))[:, 0] * one.steps
    assert np.median(on_two) == pytest.approx(3 * 3600)


def test_steps_that_are_wholly_divided_are_as_long_on_two_vcpus() -> None:
    before, after = (one.seconds_per_step(np.array([1, 2, 8])) for one in (RECORDS[0], wholly_divided(RECORDS[0])))
    assert np.allclose(after[:, 1], before[:, 1])
    assert np.allclose(after, after[:, :1] / np.array([1, 2, 8]))


def test_a_sampler_chooses_among_the_recorded_settings(field: SweepField) -> None:
    sampled = run_sampled(field, RECORDS[:1], field.starts(3), "TPESampler")
    again = run_sampled(field, RECORDS[:1], field.starts(3), "TPESampler")
    assert np.array_equal(sampled.usd, again.usd)
    assert sampled.usd.shape == sampled.found.shape == (1, 3)
    assert (sampled.usd > 0).all()
    assert run_sampled(field, RECORDS[:1], field.starts(2), "grid").found.all(), "a grid has the best of all"
    torn = replace(RECORDS[0], settings=tuple({"a": row % 3, "b": row} for row in range(6)))
    with pytest.raises(ValueError, match="no grid"):
        RecordedSampler(torn, "TPESampler", 0)


def test_sweeps_beside_single_machines_with_pictures(field: SweepField, tmp_path: Path) -> None:
    starts = field.starts(2)
    full = run_sweeps("theta 1", field, RECORDS, starts)
    half = run_sweeps("theta 0.5", field, RECORDS, starts, theta=0.5)
    assert full.usd.shape == full.hours.shape == full.free.shape == (2, 2)
    assert (full.steps == 1).all()
    assert np.allclose(half.steps, (6 * 10 + 3 * 10) / (6 * 20))
    assert (half.usd < full.usd).all()
    assert full.top1.all()
    assert np.allclose(full.rates, 1 / (full.usd * full.hours))
    series = run_singles("series", field, RECORDS, starts, SingleChoice.CHEAPEST, in_series=True)
    alone = run_singles("alone", field, RECORDS, starts, SingleChoice.FASTEST, in_series=False)
    assert (series.hours > alone.hours).all()
    pressed = run_sweeps("deadline", field, RECORDS, starts, deadlines_s=[3600, 3600])
    assert (pressed.hours < full.hours).all()
    assert (pressed.usd > full.usd).all()
    draw_approaches([half, full, series, alone], ["a", "b"], "a note", tmp_path / "sweep.png")
    draw_thetas({0.5: half, 1.0: full}, ["a", "b"], "a note", tmp_path / "theta.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("sweep.png", "theta.png"))
