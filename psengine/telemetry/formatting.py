"""Numbers as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as runs, rising: ``0-3, 7``; ``none`` where there are none."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in found) or "none"


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes with three digits: ``1.25 MB``; powers of ten."""
    unit = 0
    while n_bytes >= 999.5 and unit < 4:
        n_bytes, unit = n_bytes / 1000, unit + 1
    return f"{n_bytes:.0f} B" if unit == 0 else f"{n_bytes:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"
