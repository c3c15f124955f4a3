"""Predictions of curves whose end is known, and of arrays that are no curves at all."""

import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from proteus_spot.benchmarks.papers.sweeps.slaq import predict_final_slaq
from proteus_spot.bidding.tuning.curves import predict_final
from proteus_spot.bidding.tuning.curves.curve_stages import stage_starts

STEPS = np.arange(1, 201)


def falling(rate: float = 0.1, floor: float = 0.3) -> np.ndarray:
    return 1 / (0.002 * STEPS**2 + rate * STEPS + 0.5) + floor


def staged() -> np.ndarray:
    """A learning rate that is cut at step 120: the loss is steady, drops, and falls on."""
    losses = 1.5 / (1 + 0.4 * STEPS) + 1.0
    losses[119:] = 0.1 / (1 + 0.1 * (STEPS[119:] - 120)) + 0.3
    return losses


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("scale", [1e-200, 1e-6, 1.0, 1e9, 1e120])
def test_a_curve_of_the_formula_is_predicted_in_any_unit(rate: float, scale: float) -> None:
    losses = falling(rate) * scale
    found = predict_final(STEPS[:100], losses[:100], 200, "minimize")
    assert found.value == pytest.approx(losses[-1], rel=2e-3)
    assert found.std is not None
    assert found.std < 0.05 * scale


def test_a_maximised_metric_is_the_bound_less_a_loss() -> None:
    accuracies = 100 - falling()
    found = predict_final(STEPS[:100], accuracies[:100], 200, "maximize", 100.0)
    assert found.value == pytest.approx(accuracies[-1], rel=1e-5)
    # Without the bound (1 then) losses are below 0, and the floor is free.
    assert predict_final(STEPS[:100], accuracies[:100], 200, "maximize").value == pytest.approx(found.value, rel=1e-5)
    # A straight rise to 0.98 ends at the bound of 1 at most.
    straight = predict_final(STEPS[:100], np.linspace(0.3, 0.98, 100), 2000, "maximize")
    assert straight.value is not None
    assert 0.98 < straight.value <= 1


def test_a_new_stage_is_fitted_by_itself_where_slaq_fits_one_curve() -> None:
    losses = staged()
    ours, slaq = (f(STEPS[:150], losses[:150], 200, "minimize") for f in (predict_final, predict_final_slaq))
    assert ours.stages == (1, 120)
    assert slaq.stages == (1,)
    assert abs(ours.value - losses[-1]) < 1e-3
    assert abs(slaq.value - losses[-1]) > 0.03


@pytest.mark.parametrize(
    ("losses", "starts"),
    [
        ([9.0] * 6 + [4.0] * 5, [0, 6]),
        ([9.0] * 5 + [4.0] * 5, [0]),  # four steady steps only
        ([9.0, 9.0, 8.0, *[8.0] * 4, 4.0 * 0.9], [0]),  # the fifth before is none of 1 %
        ([9.0] * 6 + [4.6] * 5, [0]),  # a change below a half
        ([0.0] * 6 + [1.0] * 5, [0, 6]),  # infinitely many times 0
    ],
)
def test_a_stage_begins_with_a_jump_after_five_steady_steps(losses: list[float], starts: list[int]) -> None:
    assert stage_starts(np.array(losses)).tolist() == starts


def test_a_stage_of_few_values_predicts_nothing_and_says_where_it_began() -> None:
    found = predict_final(STEPS[:122], staged()[:122], 200, "minimize")
    assert found.value is None
    assert found.why == "its stage since step 120 has 3 values, and a prediction needs 5"


def test_two_standard_deviations_hold_most_noisy_ends() -> None:
    rng = np.random.default_rng(0)
    within = 0
    for _ in range(50):
        losses = falling(rng.uniform(0.02, 0.5)) + 0.02 * rng.standard_normal(200)
        found = predict_final(STEPS[:140], losses[:140], 200, "minimize")
        assert found.value is not None
        assert found.std is not None
        assert found.std < 0.1
        within += abs(found.value - losses[-1]) < 2 * found.std
    assert within >= 44


def test_noise_without_a_trend_has_its_mean_as_prediction() -> None:
    losses = 1 + 0.1 * np.random.default_rng(1).standard_normal(100)
    found = predict_final(STEPS[:100], losses, 200, "minimize")
    assert found.value == pytest.approx(1.0, abs=0.06)
    assert found.std == pytest.approx(0.1, rel=0.4)


def test_a_rising_curve_is_predicted_by_its_newest_values() -> None:
    losses = falling() + np.maximum(STEPS - 60, 0) * 0.01
    found = predict_final(STEPS[:140], losses[:140], 200, "minimize")
    assert "rises" in found.why
    assert found.value == pytest.approx(losses[112:140].mean())
    assert abs(found.value - losses[-1]) < 2 * found.std


@pytest.mark.parametrize("level", [0.0, -3.0, 7.5])
def test_a_constant_is_a_plateau(level: float) -> None:
    found = predict_final(STEPS[:50], np.full(50, level), 200, "minimize")
    assert (found.value, found.std, found.plateau_at) == (level, 0.0, 1)


def test_a_plateau_begins_where_the_curve_has_stopped_to_move() -> None:
    losses = np.concatenate([falling()[:60], np.full(60, falling()[59])])
    found = predict_final(STEPS[:120], losses, 200, "minimize")
    assert found.plateau_at == 60
    # A curve that falls so slowly that a window of it looks flat is not a plateau.
    assert predict_final(STEPS[:120], falling()[:120], 200, "minimize").plateau_at is None


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("offset", [0.0, 5000.0, -5000.0, -1.0, -0.32, 1e-3])
@pytest.mark.parametrize("curve", [falling(), falling(0.02), staged(), 0.2 + 0.6 / STEPS**1.5])
def test_a_constant_changes_no_prediction(curve: np.ndarray, offset: float, direction: str) -> None:
    sign = 1.0 if direction == "minimize" else -1.0
    plain, moved = (
        predict_final(STEPS[:150], sign * (curve[:150] + by), 200, direction, None if sign > 0 else 0.0)
        for by in (0.0, offset)
    )
    assert (moved.stages, moved.plateau_at) == (plain.stages, plain.plateau_at)
    assert plain.value is not None
    assert moved.value == pytest.approx(plain.value + sign * offset, abs=0.01 * np.ptp(curve))


@pytest.mark.parametrize("offset", [0.0, 5000.0, -5000.0, -0.1])
def test_a_plateau_is_measured_against_the_spread_of_the_curve(offset: float) -> None:
    moving = 0.1 + 4.0 / np.arange(1, 31) + offset  # falls by 40 % of what it is above its floor afterwards
    assert predict_final(np.arange(1, 31), moving, 100, "minimize").plateau_at is None
    still = np.concatenate([moving, np.full(12, moving[-1])])
    assert predict_final(np.arange(1, 43), still, 100, "minimize").plateau_at == 30


@pytest.mark.parametrize(
    ("values", "why", "diverged"),
    [
        ([], "it has 0 finite values", False),
        ([1.0, 0.5, 0.4, 0.3], "it has 4 finite values", False),
        ([np.nan] * 3, "it has 0 finite values", False),
        ([1.0] * 10 + [np.nan] * 5, "its last 5 values are infinite or no numbers", True),
        ([1.0] * 10 + [np.inf, -np.inf, np.nan, np.inf, np.nan], "its last 5 values are infinite or no numbers", True),
    ],
)
def test_what_cannot_be_predicted_says_why(values: list[float], why: str, diverged: bool) -> None:
    found = predict_final(np.arange(len(values)), values, 200, "minimize")
    assert found.value is None
    assert found.std is None
    assert why in found.why
    assert found.diverged is diverged


def test_missing_values_and_repeated_steps_are_left_out() -> None:
    losses = falling()[:100]
    gaps = losses.copy()
    gaps[::7] = np.nan
    whole, found = (predict_final(STEPS[:100], values, 200, "minimize") for values in (losses, gaps))
    assert found.value == pytest.approx(whole.value, rel=1e-4)
    twice = predict_final([*STEPS[90:100], *STEPS[:100]], [*[99.0] * 10, *losses], 200, "minimize")
    assert twice == whole


def test_a_step_that_was_reported_needs_no_fit() -> None:
    found = predict_final(STEPS, falling(), 200, "minimize")
    assert (found.value, found.std) == (falling()[-1], 0.0)


@settings(max_examples=150, deadline=None)
@given(
    values=hnp.arrays(np.float64, st.integers(0, 60)),
    final=st.integers(1, 500),
    direction=st.sampled_from(["minimize", "maximize"]),
    bound=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    shape=st.sampled_from(["as it is", "falling", "scaled"]),
)
@example(np.array([1.7120887e308, 0.0]), 1, "maximize", None, "as it is")  # what lies beyond it is not a number
def test_any_array_is_answered(values: np.ndarray, final: int, direction: str, bound: float | None, shape: str) -> None:
    if shape == "falling":
        with np.errstate(all="ignore"):
            values = np.sort(values)[::-1]
    if shape == "scaled" and len(values):
        with np.errstate(all="ignore"):
            values = falling()[: len(values)] * values[0]
    for predict in (predict_final, predict_final_slaq):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = predict(np.arange(1, len(values) + 1), values, final, direction, bound)
        assert found.why
        if found.value is None:
            assert found.std is None
        else:
            assert np.isfinite(found.value)
            assert found.std is not None
            assert found.std >= 0
            assert np.isfinite(found.std)
