"""Checks of the parameters that users give to applications; they raise ValueError with a one-line remedy."""

from __future__ import annotations

import math
from typing import Any


def check_whole(low: int, **values: Any) -> None:
    """Raise ValueError for the first of `values` that is not an integer of at least `low`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ValueError(f"{name} is {value!r}; want a whole number from {low}")


def check_above(low: float, **values: Any) -> None:
    """Raise ValueError for the first of `values` that is not a finite number above `low`."""
    for name, value in values.items():
        if not _is_number(value) or value <= low:
            raise ValueError(f"{name} is {value!r}; want a number above {low:g}")


def check_from(low: float, **values: Any) -> None:
    """Raise ValueError for the first of `values` that is not a finite number of at least `low`."""
    for name, value in values.items():
        if not _is_number(value) or value < low:
            raise ValueError(f"{name} is {value!r}; want a number from {low:g}")


def check_truth(**values: Any) -> None:
    """Raise ValueError that names the first of `values` that is neither true nor false."""
    for name, value in values.items():
        if value is not True and value is not False:
            raise ValueError(f"{name} is {value!r}; want true or false")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False
