"""Money is whole micro-dollars; rounding is half to even and exact."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.market.money import prorate, to_dollars, to_micros, usd


@pytest.mark.parametrize(
    ("dollars", "micros"),
    [
        ("0.0324", 32_400),
        (0.0324, 32_400),
        (0.1 + 0.2, 300_000),
        (3, 3_000_000),
        (Decimal("-1.5"), -1_500_000),
        ("0.0000005", 0),
        ("0.0000015", 2),
        ("0.0000025", 2),
        ("2.5e-6", 2),
    ],
)
def test_dollars_become_micros_half_to_even(dollars: str | float | Decimal, micros: int) -> None:
    assert to_micros(dollars) == micros


@pytest.mark.parametrize("bad", ["", "ten", "nan", "inf", float("nan"), float("-inf"), "1,5", "$1"])
def test_what_is_no_amount_is_refused(bad: str | float) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        to_micros(bad)


@given(st.integers(-(10**12), 10**12))
def test_micros_survive_the_way_through_dollars(micros: int) -> None:
    assert to_micros(to_dollars(micros)) == micros


@given(st.integers(-(10**13), 10**13), st.integers(0, 7200), st.integers(1, 7200))
def test_a_share_is_the_exact_fraction_rounded_half_to_even(amount: int, part_s: int, whole_s: int) -> None:
    share = prorate(amount, part_s, whole_s)
    assert type(share) is int
    assert share == round(Fraction(amount * part_s, whole_s))


def test_a_share_of_half_a_micro_goes_to_the_even_side() -> None:
    assert [prorate(amount, 1, 2) for amount in (1, 3, 5, -1, -3)] == [0, 2, 2, 0, -2]


@pytest.mark.parametrize(
    ("micros", "places", "text"),
    [(32_400, 4, "$0.0324"), (-32_400, 4, "-$0.0324"), (1_234_567_890, 2, "$1,234.57"), (0, 2, "$0.00")],
)
def test_money_is_shown_for_a_reader(micros: int, places: int, text: str) -> None:
    assert usd(micros, places) == text


@pytest.mark.parametrize("text", ["1e18", "1e400", "1e999999999", "9" * 5000])
def test_an_amount_beyond_all_money_is_refused_and_not_counted_out(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        to_micros(text)
