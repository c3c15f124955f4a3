"""Standard output and error that may be closed, full, or unable to encode a character.

If standard output is closed, Python sets ``sys.stdout`` to None and the next opened file gets its descriptor.
"""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

from proteus_spot.infra.errors import ProteusError

_Text = TypeVar("_Text", bound=io.TextIOWrapper)


class OutputFailed(ProteusError):
    """A write to standard output failed; the command ends with exit code 2."""

    exit_code = 2


class _Output(io.TextIOWrapper):
    """Standard output whose failed writes become a one-line error, except for a closed pipe.

    It stands above the buffer: were it below, a signal that arrives when a write has just been made would leave the
    buffer full, and its content would be written again.
    """

    is_closed = False

    def write(self, text: str) -> int:
        with self._failures_in_words():
            return super().write(text)

    def flush(self) -> None:
        with self._failures_in_words():
            super().flush()

    @contextmanager
    def _failures_in_words(self) -> Iterator[None]:
        if self.is_closed:
            raise OutputFailed("standard output: is closed; send it to a file, or to /dev/null")
        try:
            yield
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EAGAIN):
                raise
            raise OutputFailed(f"standard output: {os.strerror(error.errno or 0)}; send it elsewhere") from None


class _Messages(io.TextIOWrapper):
    """Standard error whose failed writes are ignored."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def guard_standard_streams() -> None:
    """Open closed standard streams, and make a failed write to standard output a one-line error.

    A stream that has been replaced, as in a test, is not changed.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    for _ in closed:  # each open gets the lowest free descriptor
        os.open(os.devnull, os.O_RDWR)
    if 1 in closed or _is_own(sys.stdout, sys.__stdout__):
        output = _text(_Output, 1, sys.stdout)
        output.is_closed = 1 in closed
        sys.stdout = output
    if 2 in closed or _is_own(sys.stderr, sys.__stderr__):
        sys.stderr = _text(_Messages, 2, sys.stderr, line_buffering=True)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _is_own(stream: TextIO | None, first: TextIO | None) -> bool:
    return stream is not None and stream is first


def _text(kind: type[_Text], number: int, before: TextIO | None, *, line_buffering: bool = False) -> _Text:
    raw = io.FileIO(number, "w", closefd=False)
    encoding = getattr(before, "encoding", None) or "utf-8"
    # A file name that is not valid UTF-8 is printed as its bytes.
    errors = "surrogateescape" if encoding.lower().replace("-", "") == "utf8" else "backslashreplace"
    line_buffering = line_buffering or raw.isatty()
    return kind(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=line_buffering)
