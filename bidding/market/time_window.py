"""`TimeWindow`: the interval of a fit, a check or a backtest."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The seconds [from_s, until_s) since 1970; as text, its ends to the minute, UTC.

    Raises
    ------
    ValueError
        If the end is not after the beginning.
    """

    from_s: int
    until_s: int

    def __post_init__(self) -> None:
        if self.until_s <= self.from_s:
            raise ValueError(f"a window must end after it begins, not {self.until_s} after {self.from_s}")

    def overlaps(self, other: "TimeWindow") -> bool:
        """Return whether the two have a second in common."""
        return self.from_s < other.until_s and other.from_s < self.until_s

    def __str__(self) -> str:
        begin, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (self.from_s, self.until_s))
        return f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"
