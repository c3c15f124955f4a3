"""Times of day and durations as users write and read them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S
from proteus_spot.infra.errors import InputError

_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?([mhd])")
_UNITS_S = {"m": MINUTE_S, "h": HOUR_S, "d": DAY_S}


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time by which a job must be done: so long after its submission, or at a time; one of the two is None."""

    after_s: int | None
    at_s: int | None

    def time_s(self, submitted_s: float) -> int:
        """Return the deadline of a job that was submitted at `submitted_s`, seconds since the epoch."""
        return int(submitted_s) + self.after_s if self.after_s is not None else int(self.at_s or 0)


def parse_deadline(text: str) -> Deadline:
    """Return the deadline written as ``90m``, ``12h`` or ``2d`` from the submission, or as an ISO time with its zone.

    Raises
    ------
    ValueError
        If it is neither; says what to write.
    """
    if (found := _DURATION.fullmatch(text.strip())) is not None:
        after_s = round(float(found[1]) * _UNITS_S[found[2]])
        if after_s < 1:
            raise ValueError(f"{text} from the submission is not a time; write 90m or 12h")
        return Deadline(after_s, None)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a deadline; write 90m or 12h from the submission, or a time with its zone, as "
            "in 2026-06-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no zone; write it as in 2026-06-01T12:00:00Z")
    return Deadline(None, int(moment.timestamp()))


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


def day(at_s: float) -> str:
    """Return the UTC day of a time, as in ``2016-05-01``."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"


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
        raise InputError(f"{option} {text}: is not a UTC day or time; write 2016-05-01 or 2016-05-01T12:00") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    day = found == found.replace(hour=0, minute=0, second=0, microsecond=0) and len(text.strip()) <= len("2016-05-01")
    return Moment(option, text.strip(), int(found.timestamp()), day)
