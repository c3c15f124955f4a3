"""Formatting of number ranges, byte sizes and errors."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from proteus_spot.psengine.tables.allowed_values import WrongValue


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as rising ranges: ``0-3, 7``; ``none`` if there are none."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in found) or "none"


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes with three digits and a decimal unit: ``1.25 MB``."""
    unit = 0
    while n_bytes >= 999.5 and unit < 4:
        n_bytes, unit = n_bytes / 1000, unit + 1
    return f"{n_bytes:.0f} B" if unit == 0 else f"{n_bytes:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"


#: Maximum characters of an exception's text in a line.
MOST_CHARACTERS = 500


def error_text(error: BaseException) -> str:
    """Return the text of an exception, cut where it is long."""
    try:
        text = str(error)
    except Exception as raised:  # noqa: BLE001 - a user's exception may fail at this, too
        return f"its text cannot be made ({type(raised).__name__})"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def format_error(error: BaseException, app: str = "") -> str:
    """Return an error on one line, after the last line of user code in its trace: ``mine.py:12: KeyError: 'x'``.

    Of a value that is not allowed, the line follows the place of the method that has returned it.

    Parameters
    ----------
    app : the application, as ``module:Class``; the code of a built-in one is not the user's.
    """
    if isinstance(error, WrongValue):
        line = error_text(error).splitlines()[0]
        if error.place:
            return f"{error.place}: {line}"
    else:
        line = f"{type(error).__name__}: {error_text(error)}".splitlines()[0]
    module, colon, _ = app.partition(":")
    if not colon:
        return line
    package = module.partition(".")[0]
    at = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            at = f"{frame.f_code.co_filename.rpartition('/')[2]}:{number}: "
    return at + line
