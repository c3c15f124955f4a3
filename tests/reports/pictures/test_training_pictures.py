"""The picture of a training shows what its figures say."""

from itertools import accumulate
from typing import Any

import pytest

from proteus_spot.reports.pictures.training_pictures import training_figure, training_svg

SECONDS = [0.5, 0.25, 1.0, 0.25]
FIGURES: dict[str, Any] = {
    "job": "storm",
    "seconds_by_clock": SECONDS,
    "losses": [[1, 4.0], [2, 2.0], [3, None], [4, 1.0]],
    "metrics_by_clock": [[2, {"accuracy": 0.5, "loss": 9.0}], [4, {"accuracy": 0.75, "loss": 8.0}]],
    "stalls": [{"event": "loss", "nodes": ["t1"], "second": 0.9}],
    "memory_by_clock": [[1, 4_000_000, 1_000_000, 3_000_000, 2], [4, 1_000_000, 1_000_000, 3_000_000, 1]],
    "timeline": [
        {
            "second": 0.0,
            "clock": 0,
            "stage": 1,
            "nodes": {"r1": ["reliable", "ready"], "t1": ["transient", "ready"]},
            "shards": {"0": ["r1", None], "1": ["r1", None]},
        },
        {"second": 0.5, "clock": 1, "stage": 2, "shards": {"1": ["t1", "r1"]}},
        {"second": 0.9, "clock": 2, "nodes": {"t1": ["transient", "gone"]}, "shards": {"1": ["r1", None]}},
    ],
}


@pytest.fixture(scope="module")
def axes() -> dict[str, Any]:
    return {axis.get_label(): axis for axis in training_figure(FIGURES).axes}


def line(axis: Any, gid: str) -> list[tuple[float, float]]:
    (found,) = [of for of in axis.lines if of.get_gid() == gid]
    return [(float(x), float(y)) for x, y in zip(*found.get_data(), strict=True)]


def test_every_line_is_on_the_axis_of_time(axes: dict[str, Any]) -> None:
    assert line(axes["clock time"], "clock time") == list(zip(accumulate(SECONDS), [500, 250, 1000, 250], strict=True))
    assert line(axes["loss"], "loss") == [(0.5, 4.0), (0.75, 2.0), (2.0, 1.0)]
    assert line(axes["held out"], "held out") == [(0.75, 0.5), (2.0, 0.75)]
    assert "accuracy" in axes["held out"].get_ylabel()
    assert line(axes["stage"], "stage") == [(0.0, 1.0), (0.5, 2.0), (0.9, 2.0), (2.0, 2.0)]
    for name in ("clock time", "loss", "nodes", "shards"):
        assert axes[name].get_xlim() == (0, 2.0)
        assert [0.9, 0.9] in [list(of.get_xdata()) for of in axes[name].lines if of.get_gid() == "change"]


def test_the_memory_by_kind_lies_one_above_the_other(axes: dict[str, Any]) -> None:
    areas = {of.get_gid(): of.get_paths()[0].get_extents() for of in axes["memory"].collections}
    heights = {gid: (round(area.y0, 3), round(area.y1, 3)) for gid, area in areas.items()}
    assert heights == {
        "memory of tables": (0.0, 4.0),
        "memory of states": (1.0, 5.0),
        "memory of input": (2.0, 8.0),
    }
    assert areas["memory of input"].x1 == pytest.approx(2.0)


def test_who_served_and_kept_each_shard(axes: dict[str, Any]) -> None:
    bars = sorted(
        (container.get_label(), round(bar.get_x(), 3), round(bar.get_x() + bar.get_width(), 3), round(bar.get_y()))
        for container in axes["shards"].containers
        for bar in container
    )
    assert bars == [
        ("r1", 0.0, 0.5, 1),
        ("r1", 0.0, 2.0, 0),
        ("r1", 0.5, 0.9, 1),  # the copy
        ("r1", 0.9, 2.0, 1),
        ("t1", 0.5, 0.9, 1),
    ]


def test_a_job_of_which_nothing_is_known_has_a_picture_too() -> None:
    assert training_svg({"job": "old"}).startswith(b"<?xml")
    assert training_svg(FIGURES) == training_svg(FIGURES)


def test_of_many_clocks_the_slow_ones_are_drawn() -> None:
    seconds = [0.01] * 20_000
    seconds[7777] = 1.0
    (axis,) = [a for a in training_figure({"seconds_by_clock": seconds}).axes if a.get_label() == "clock time"]
    drawn = line(axis, "clock time")
    assert len(drawn) <= 1500
    assert max(ms for _, ms in drawn) == 1000.0
