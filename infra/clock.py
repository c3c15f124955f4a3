"""Market time, shared by all processes.

The system clock runs at scale 1. A scaled clock is a small file with a pair of real and market time and the number of
market seconds per real second. All processes that use the file read the same time, and `jump_to` moves all of them at
once if nothing has to run in between. Only this module reads the machine's clock.
"""

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from proteus_spot.infra.errors import InputError

#: Real seconds between two checks of a waiting process for a moved clock.
_LOOK_S = 0.25


class Clock(Protocol):
    """Returns the time, and waits."""

    @property
    def scale(self) -> float:
        """Market seconds per real second."""
        ...

    def now_s(self) -> float:
        """Return market time in seconds since the Unix epoch."""
        ...

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        """Wait until market time `at_s`, or until `wake` is set; return whether `wake` was."""
        ...


class SystemClock:
    """Market time is real time."""

    scale = 1.0

    def now_s(self) -> float:
        """Return the wall clock."""
        return time.time()

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        """Wait until `at_s`, or until `wake` is set; return whether `wake` was."""
        wake = wake or threading.Event()
        while (left_s := at_s - time.time()) > 0:
            if wake.wait(min(left_s, 60.0)):
                return True
        return wake.is_set()


@dataclass(frozen=True)
class _Anchor:
    """Market time `market_s` at real time `real_s` (wall clock), with the `scale` from then on."""

    real_s: float
    market_s: float
    scale: float


class ScaledClock:
    """Market time that runs faster than real time, shared through a file.

    Parameters
    ----------
    path : path of the clock's file, made by `create`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._anchor: _Anchor | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], market_s: float, scale: float) -> "ScaledClock":
        """Start a clock at market time `market_s` that runs `scale` market seconds per real second."""
        if not scale > 0:
            raise InputError(f"clock: a scale of {scale} does not move time forward; give one above 0")
        clock = cls(path)
        clock._write(_Anchor(time.time(), market_s, scale))
        return clock

    @property
    def scale(self) -> float:
        """Market seconds per real second."""
        return self._read().scale

    def now_s(self) -> float:
        """Return market time."""
        anchor = self._read()
        return anchor.market_s + (time.time() - anchor.real_s) * anchor.scale

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        """Wait until market time `at_s`, or until `wake` is set; return whether `wake` was."""
        wake = wake or threading.Event()
        while (left_s := at_s - self.now_s()) > 0:
            if wake.wait(min(left_s / self.scale, _LOOK_S)):
                return True
        return wake.is_set()

    def run_at(self, scale: float) -> None:
        """Change the scale for every reader of this clock, from the present market time on."""
        self._write(_Anchor(time.time(), self.now_s(), scale))

    def jump_to(self, at_s: float) -> None:
        """Set every reader of this clock to market time `at_s`; never backwards."""
        if at_s > self.now_s():
            self._write(_Anchor(time.time(), at_s, self.scale))

    def _read(self) -> _Anchor:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if self._anchor is None or stamp != self._stamp:
                self._anchor = _Anchor(**json.loads(self._path.read_text()))
                self._stamp = stamp
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"clock: {self._path}: {error}; PROTEUS_CLOCK names no clock file") from None
        return self._anchor

    def _write(self, anchor: _Anchor) -> None:
        new_path = self._path.with_suffix(f".{os.getpid()}.new")
        new_path.write_text(json.dumps(asdict(anchor)))
        new_path.replace(self._path)


def open_clock(setting: str) -> Clock:
    """Return the clock of a setting: ``system``, or the path of a scaled clock's file."""
    return SystemClock() if setting == "system" else ScaledClock(setting)
