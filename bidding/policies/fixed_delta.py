"""Policy names with a bid delta: ``fixed-delta:0.01`` bids a cent above the price."""

from decimal import Decimal

from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros, to_micros

#: Prefix of the name, before the number of dollars.
FIXED_DELTA = "fixed-delta"

#: Form of the name in a list of policies.
PATTERN = f"{FIXED_DELTA}:USD"

#: Maximum bid delta of a name: more than any market ever cost.
_MOST_MICROS = 1_000 * MICROS_PER_DOLLAR


def delta_of(name: str) -> Micros | None:
    """Return the bid delta of ``fixed-delta:USD``; None if the name has another prefix.

    Raises
    ------
    ValueError
        If the dollars are missing, no number, negative, too many, or finer than a micro-dollar.
    """
    word, colon, dollars = name.partition(":")
    if word != FIXED_DELTA:
        return None
    if not (colon and dollars):
        raise ValueError(f"{name!r}: the bid delta is missing, as in {FIXED_DELTA}:0.01")
    try:
        micros = to_micros(dollars)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    if Decimal(dollars) * MICROS_PER_DOLLAR != micros:
        raise ValueError(f"{name!r}: a bid delta cannot be finer than a micro-dollar")
    if not 0 <= micros <= _MOST_MICROS:
        raise ValueError(f"{name!r}: a bid delta must be from 0 to {_MOST_MICROS // MICROS_PER_DOLLAR} dollars")
    return micros


def name_of(delta_micros: Micros) -> str:
    """Return the name that `delta_of` reads as this bid delta."""
    return f"{FIXED_DELTA}:{Decimal(delta_micros) / MICROS_PER_DOLLAR}"
