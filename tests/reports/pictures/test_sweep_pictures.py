"""The pictures of a sweep show what its view holds, for any number of trials."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proteus_spot.reports.pictures.sweep_pictures import (
    curves_figure,
    curves_png,
    dollars_figure,
    dollars_svg,
    parallel_figure,
    timeline_figure,
)
from proteus_spot.reports.sweep_view import MOST_DRAWN, SweepView
from tests.support.sweep_views import BEGUN_S, empty_view, small_view


def _named(artists: Any, gid: str) -> dict[str, Any]:
    return {str(each.get_gid()): each for each in artists if str(each.get_gid()).startswith(gid)}


def test_machines_stand_in_the_row_of_their_trial_below_the_prices_of_the_same_times() -> None:
    view = small_view()
    prices, rows = timeline_figure(view).axes
    assert prices.get_xlim() == rows.get_xlim() == (0, view.last_s - BEGUN_S)
    bars = _named(rows.patches, "m-")
    assert len(bars) == len(view.machines)
    moved = bars["m-s-t0-1"]
    assert (moved.get_x(), moved.get_width()) == (2100, 2900)
    assert round(moved.get_y() + moved.get_height() / 2) == 0
    assert bars["m-s-t1-0"].get_width() == view.last_s - BEGUN_S - 60, "one that lives is drawn to the last record"
    assert set(_named(rows.lines, "e-")) == {"e-s-t0-0", "e-s-t2-0"}
    colours = {name: bar.get_facecolor() for name, bar in bars.items()}
    assert colours["m-s-t0-1"] == colours["m-s-t1-0"] != colours["m-s-t0-0"], "a colour is a market"
    lines = _named(prices.lines, "p-")
    assert lines["p-r4.large/us-east-1a"].get_ydata().tolist() == [0.02, 0.09, 0.09]
    assert set(lines) == {f"p-{market}" for market in view.prices}


def test_curves_are_drawn_with_their_predictions() -> None:
    view = small_view()
    (axis,) = curves_figure(view).axes
    curves = _named(axis.lines, "c-")
    assert set(curves) == {"c-0", "c-1"}
    assert curves["c-1"].get_xdata().tolist() == list(range(1, 121))
    predicted = {container.lines[0].get_ydata()[0] for container in axis.containers}
    assert predicted == {0.45, 0.15}
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["trial-01: 0.2", "trial-00: 0.5"]


def test_parallel_lines_are_settings_with_a_value_at_the_height_of_their_parameters() -> None:
    (axis,) = parallel_figure(small_view()).axes
    lines = _named(axis.lines, "l-")
    assert {name: line.get_ydata().tolist() for name, line in lines.items()} == {"l-0": [0, 0, 1], "l-1": [1, 1, 0]}
    assert lines["l-1"].get_linewidth() > lines["l-0"].get_linewidth(), "the best is the thickest"
    texts = {text.get_text() for text in axis.texts}
    assert {"1e-05", "0.001", "l1", "l2", "0.2", "0.5"} <= texts


def test_dollars_are_what_was_paid_and_beside_it_what_was_refunded() -> None:
    (axis,) = dollars_figure(small_view()).axes
    paid, refunded = axis.containers
    assert [bar.get_width() for bar in paid] == [0.04, 0.03, 0]
    assert [(bar.get_x(), bar.get_width()) for bar in refunded] == [(0.04, pytest.approx(0.02)), (0.03, 0), (0, 0)]


def _odd_views() -> dict[str, SweepView]:
    view = small_view()
    one = view.trials[1]
    values = np.full(120, np.nan)
    many = tuple(replace(one, number=n, value=n / 7) for n in range(MOST_DRAWN + 20))
    return {
        "nothing yet": empty_view(),
        "one trial": replace(view, trials=(one,)),
        "a curve of NaN": replace(view, trials=(replace(one, curve_values=values, value=None, predicted=None),)),
        "equal values": replace(view, trials=(one, replace(one, number=0))),
        "maximized": replace(view, direction="maximize"),
        "many": replace(view, trials=many, trial_count=len(many)),
        "negative values": replace(view, trials=(replace(one, curve_values=-one.curve_values, value=-2.0),)),
    }


@pytest.mark.parametrize("name", list(_odd_views()))
def test_every_sweep_can_be_drawn(name: str) -> None:
    for draw in (timeline_figure, curves_figure, parallel_figure, dollars_figure):
        assert draw(_odd_views()[name]).axes


def test_a_picture_of_the_same_sweep_has_the_same_bytes() -> None:
    assert dollars_svg(small_view()) == dollars_svg(small_view()) != dollars_svg(empty_view())
    assert curves_png(empty_view()).startswith(b"\x89PNG")
