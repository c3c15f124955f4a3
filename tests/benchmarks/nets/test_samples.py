"""Samples to one loss: a loss between, above and below those of synchronous trainings."""

from typing import Any

import pytest

from proteus_spot.benchmarks.nets.samples import samples_factor, tables


def table(steps: int, alone: float | None, **losses: float) -> dict[str, Any]:
    rows = [{"workers": int(name[1:]), "loss": loss} for name, loss in losses.items()]
    return {"steps": steps, "together": {} if alone is None else {"0.01": alone + 0.1, "0.02": alone}, "settings": rows}


@pytest.mark.parametrize(("loss", "same"), [(2.0, 100), (1.75, 316.23), (1.51, 954.99), (1.45, 1000), (2.5, 10)])
def test_the_steps_of_the_same_loss_are_interpolated_in_their_logarithm(loss: float, same: float) -> None:
    kept = [table(100, 2.0), table(1000, 1.5, w4=loss), table(10_000, 1.35)]
    factor, steps = samples_factor(kept, 4)
    assert (factor, steps) == (pytest.approx(1000 / same, rel=1e-3), 1000), "a lower loss at as many steps is chance"


def test_a_longer_training_is_compared_with_the_lengths_around_its_loss() -> None:
    kept = [table(100, 2.0), table(1000, 1.5), table(10_000, 1.35, w4=1.45)]
    assert samples_factor(kept, 4)[0] == pytest.approx(10_000 / 2154.4, rel=1e-3)


def test_the_longest_training_counts_and_its_best_setting() -> None:
    kept = [table(100, 2.0, w4=2.5), table(1000, 1.5, w4=1.75)]
    kept[1]["settings"].append({"workers": 4, "loss": 1.5})
    assert samples_factor(kept, 4) == (pytest.approx(1.0), 1000)
    kept[1]["settings"].append({"loss": 2.0})
    assert samples_factor(kept, 8)[0] == pytest.approx(10.0), "a setting that names no workers has eight"


@pytest.mark.parametrize("kept", [[table(100, 2.0, w4=2.0)], [table(100, 2.0, w8=2.0), table(1000, 1.5)]])
def test_too_few_trainings_are_refused(kept: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="lengths of synchronous training"):
        samples_factor(kept, 4)


def test_what_is_kept_has_the_workers_that_are_asked_for() -> None:
    assert {each.get("workers") for kept in tables() for each in kept["settings"]} >= {4, 16}
