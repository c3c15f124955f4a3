"""A window: it has a second, shares some with another or none, and is read in minutes, UTC."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.market.time_window import TimeWindow


@given(st.integers(0, 60), st.integers(0, 60))
def test_windows_overlap_iff_they_share_a_second(first: int, second: int) -> None:
    left, right = TimeWindow(first, first + 24), TimeWindow(second, second + 24)
    assert (
        left.overlaps(right)
        == right.overlaps(left)
        == bool(set(range(first, first + 24)) & set(range(second, second + 24)))
    )


@pytest.mark.parametrize("until_s", [5, 4])
def test_a_window_ends_after_it_begins(until_s: int) -> None:
    with pytest.raises(ValueError, match=f"not {until_s} after 5"):
        TimeWindow(5, until_s)


def test_a_window_is_read_in_minutes() -> None:
    assert str(TimeWindow(1464739200, 1464739200 + 86_400 + 59)) == "2016-06-01 00:00 to 2016-06-02 00:00"
