"""The picture of a plan: a curve a scheme, the limits, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from proteus_spot.infra.errors import InputError
from proteus_spot.reports.pictures.plan_pictures import Curve, check_picture, draw_plan

CURVES = [
    Curve("a", np.array([3.0, 1.0, 2.0, 9.0]), np.array([2.0, 2.0, 1.0, 7.0]), np.array([True, True, True, False])),
    Curve("b", np.array([30.0] * 4), np.array([2.5] * 4), np.array([True] * 4)),
]


def draw(target: Path, curves: list[Curve], **limits: float | None) -> None:
    draw_plan(target, "title", curves, **{"deadline_h": None, "budget_usd": None, "enough": 0.9, **limits})  # type: ignore[arg-type]


def lines_of(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines}


def test_a_curve_is_the_share_of_all_jobs_that_ended_so_far(tmp_path: Path, drawn: list[Figure]) -> None:
    draw(tmp_path / "p.png", CURVES, deadline_h=2.0, budget_usd=10.0)
    (figure,) = drawn
    cost, hours = figure.axes
    x, y = lines_of(cost)["a"]
    assert (x[1:-1], y) == ([1.0, 2.0, 3.0], [0.0, 0.25, 0.5, 0.75, 0.75])
    x, y = lines_of(hours)["a"]
    assert (x[1:-1], y[-1]) == ([1.0, 2.0, 2.0], 0.75)
    assert [10.0, 10.0] in [x for x, _ in lines_of(cost).values()]
    assert [2.0, 2.0] in [x for x, _ in lines_of(hours).values()]
    assert (cost.get_xscale(), hours.get_xscale()) == ("log", "linear")
    low, high = cost.get_xlim()
    assert low < 1.0
    assert high > 30.0


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_nothing_done_and_nothing_paid_are_drawn_too(tmp_path: Path, ending: str) -> None:
    nothing = Curve("none", np.zeros(2), np.ones(2), np.zeros(2, dtype=bool))
    free = Curve("free", np.zeros(2), np.ones(2), np.ones(2, dtype=bool))
    for curves in ([nothing], [nothing, free], [free]):
        draw(tmp_path / f"p.{ending}", curves)
        assert (tmp_path / f"p.{ending}").stat().st_size > 1000


def test_another_ending_is_refused() -> None:
    with pytest.raises(InputError, match=r"p\.gif: the name's ending says the kind of picture; end it with \.png"):
        check_picture("p.gif")
