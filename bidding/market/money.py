"""Money as integers: one micro-dollar is the unit of every price, charge and refund.

Floats appear only where an expectation is computed; charges, refunds and sums are `int`.
"""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

MICROS_PER_DOLLAR = 1_000_000

#: An amount or an hourly price in millionths of a dollar.
Micros = int


#: Maximum exponent of an amount; beyond it `int` would write out every digit.
_MOST_DIGITS = 17


def to_micros(dollars: str | float | Decimal) -> Micros:
    """Return `dollars` in micro-dollars, rounded half to even.

    Parameters
    ----------
    dollars : str, int, float or Decimal
        A float is read by its shortest decimal form, so that 0.0324 is 32400 and not one less.

    Raises
    ------
    ValueError
        If `dollars` is not a finite number, or has more than eighteen digits before the point.
    """
    try:
        value = Decimal(str(dollars))
    except InvalidOperation:
        raise ValueError(f"not an amount of money: {dollars!r}") from None
    if not value.is_finite() or value.adjusted() > _MOST_DIGITS:
        raise ValueError(f"not an amount of money: {dollars!r}")
    return int((value * MICROS_PER_DOLLAR).to_integral_value(ROUND_HALF_EVEN))


def to_dollars(micros: Micros) -> float:
    """Return `micros` in dollars, for display and for expectations."""
    return micros / MICROS_PER_DOLLAR


def usd(micros: Micros, places: int = 4) -> str:
    """Return `micros` as text for a reader, as in ``$0.0324``."""
    sign = "-" if micros < 0 else ""
    return f"{sign}${abs(micros) / MICROS_PER_DOLLAR:,.{places}f}"


def prorate(amount: Micros, part_s: int, whole_s: int) -> Micros:
    """Return the share `part_s` / `whole_s` of `amount`, rounded half to even, without floats."""
    quotient, rest = divmod(amount * part_s, whole_s)
    twice = 2 * rest
    return quotient + (twice > whole_s or (twice == whole_s and quotient % 2 == 1))
