"""Times of day and durations as users write and read them."""

from dataclasses import dataclass
from datetime import UTC, datetime

from bidding.market.model import DAY_S
from infra.errors import InputError


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that a user gave; `day` if it is a whole day, which ends where the next one begins."""

    option: str
    text: str
    at_s: int
    day: bool

    @property
    def end_s(self) -> int:
        """The first second after it."""
        return self.at_s + DAY_S if self.day else self.at_s

    def __str__(self) -> str:
        return f"{self.option} {self.text}"


def minute(at_s: int) -> str:
    """Return a time for a reader, UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"


def iso(at_s: int) -> str:
    """Return a time for programs, UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def clock(at_s: int, from_s: int) -> str:
    """Return a time for a reader, and how long after `from_s` it is."""
    minutes, seconds = divmod(at_s - from_s, 60)
    return f"{datetime.fromtimestamp(at_s, UTC):%m-%d %H:%M:%S} (+{minutes // 60}:{minutes % 60:02}:{seconds:02})"


def moment_s(option: str, text: str) -> int:
    """Return the second that a day or a time begins with; `InputError` where it is neither."""
    return parse_moment(option, text).at_s


def day_of(at_s: int) -> int:
    """Return the second at which the UTC day of `at_s` begins."""
    return at_s // DAY_S * DAY_S


def parse_moment(option: str, text: str) -> Moment:
    """Return the UTC day or time that was written for `option`; `InputError` if it is neither."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"{option} {text}: is no UTC day or time; write 2016-05-01 or 2016-05-01T12:00") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    day = found == found.replace(hour=0, minute=0, second=0, microsecond=0) and len(text.strip()) <= len("2016-05-01")
    return Moment(option, text.strip(), int(found.timestamp()), day)
