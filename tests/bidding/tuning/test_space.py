"""Parameters, grids and draws of a search space."""

import json
import math
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.tuning.space import check_names, draw, grid, grid_size, parse_parameter


def _space(**records: Any) -> dict[str, Any]:
    return {name: parse_parameter(record) for name, record in records.items()}


def test_a_grid_is_every_combination_and_the_last_parameter_changes_fastest() -> None:
    space = _space(
        alpha={"log": [1.0e-5, 1.0e-1], "points": 3},
        penalty={"choice": ["l1", None]},
        depth={"int": [1, 8], "points": 2},
    )
    settings = grid(space)
    assert grid_size(space) == len(settings) == 12
    assert settings[:3] == (
        {"alpha": 1e-5, "penalty": "l1", "depth": 1},
        {"alpha": 1e-5, "penalty": "l1", "depth": 8},
        {"alpha": 1e-5, "penalty": None, "depth": 1},
    )
    assert [setting["alpha"] for setting in settings[::4]] == [1e-5, 1e-3, 1e-1]
    assert json.loads(json.dumps(settings)) == list(settings)


@pytest.mark.parametrize(
    ("record", "points"),
    [
        ({"uniform": [0, 1], "points": 5}, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ({"uniform": [0.1, 0.4], "points": 4}, (0.1, 0.2, 0.3, 0.4)),
        ({"int": [1, 10], "points": 4}, (1, 4, 7, 10)),
        ({"int": [1, 3], "points": 3}, (1, 2, 3)),
        ({"int": [2**61, 2**61 + 2], "points": 3}, (2**61, 2**61 + 1, 2**61 + 2)),
        ({"choice": [3, 1, 2]}, (3, 1, 2)),
        ({"choice": [1, 1.0, True]}, (1, 1.0, True)),
    ],
)
def test_the_points_of_a_parameter(record: Any, points: tuple[Any, ...]) -> None:
    found = parse_parameter(record).grid()
    assert found == points
    assert [type(each) for each in found] == [type(each) for each in points]


def test_a_draw_depends_on_seed_and_number_alone_and_stays_in_range() -> None:
    space = _space(
        rate={"log": [1e-4, 1.0]}, depth={"int": [1, 3]}, share={"uniform": [0.5, 0.75]}, kind={"choice": ["a", "b"]}
    )
    drawn = [draw(space, 7, number) for number in range(400)]
    assert drawn[37] == draw(space, 7, 37) != draw(space, 8, 37)
    assert all(1e-4 <= each["rate"] <= 1 and 0.5 <= each["share"] <= 0.75 for each in drawn)
    assert {each["depth"] for each in drawn} == {1, 2, 3}
    assert {each["kind"] for each in drawn} == {"a", "b"}
    assert np.mean([math.log10(each["rate"]) for each in drawn]) == pytest.approx(
        -2, abs=0.15
    )  # uniform in the logarithm


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (3, "must be a mapping, choice: [VALUE, …], or int, uniform or log: [LOW, HIGH] (is 3)"),
        ({}, "has no kind"),
        ({"choice": [1], "int": [1, 2]}, "has choice and int; keep one"),
        ({"int": [1, 2], "pionts": 2}, "pionts is not known"),
        ({"choice": 3}, "choice must be a list (is 3)"),
        ({"choice": "l1"}, "choice must be a list (is 'l1')"),
        ({"choice": []}, "choice is empty"),
        ({"choice": [1, 1]}, "choice holds 1 twice"),
        ({"choice": [[1]]}, "choice holds [1]"),
        ({"choice": [math.nan]}, "choice holds nan"),
        ({"choice": [2**70]}, "beyond 2^62"),
        ({"choice": [1, 2], "points": 2}, "leave them out"),
        ({"int": [1, 2.5]}, "two whole numbers"),
        ({"int": [True, 3]}, "two numbers"),
        ({"uniform": [2, 1]}, "the lowest and the highest value"),
        ({"uniform": [1, 1]}, "the lowest and the highest value"),
        ({"uniform": [1, 2, 3]}, "the lowest and the highest value"),
        ({"uniform": [0, math.inf]}, "two numbers"),
        ({"uniform": [0, 10**400]}, "beyond 2^62"),
        ({"log": [0, 1]}, "log must begin above 0"),
        ({"log": ["a", 1]}, "two numbers"),
        ({"log": [1, 2], "points": 1}, "points must be a whole number from 2 to 10000 (is 1)"),
        ({"log": [1, 2], "points": 2.5}, "points must be a whole number"),
        ({"int": [1, 3], "points": 4}, "there are 3 whole numbers"),
        ({"uniform": [1.0, math.nextafter(1.0, 2)], "points": 5}, "too narrow"),
    ],
)
def test_a_wrong_parameter_says_what_to_write(record: Any, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_parameter(record)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_grid_names_the_parameter_without_points() -> None:
    with pytest.raises(ValueError, match=r"^rate: a grid needs points of a range: \{log: \[0\.1, 1\], points: 8\}$"):
        grid(_space(kind={"choice": [1, 2]}, rate={"log": [0.1, 1]}))


def test_a_grid_of_too_many_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="the grid has 1000000 settings"):
        grid(_space(**{name: {"uniform": [0, 1], "points": 100} for name in "abc"}))


@pytest.mark.parametrize("names", [[], [""], [" a"], ["a\n"], [3], ["a" * 300], [f"p{n}" for n in range(101)]])
def test_a_wrong_name_is_refused(names: list[Any]) -> None:
    with pytest.raises(ValueError):
        check_names(names)
