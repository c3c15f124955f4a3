"""Standard output and error that may be closed, full, or unable to encode a character.

If standard output is closed, Python sets ``sys.stdout`` to None and the next opened file gets its descriptor.
"""

import errno
import io
import os
import sys
from typing import Any, TextIO

from infra.errors import ProteusError


class OutputFailed(ProteusError):
    """A write to standard output failed; the command ends with exit code 2."""

    exit_code = 2


class _Output(io.FileIO):
    """Standard output whose failed writes become a one-line error, except for a closed pipe."""

    def __init__(self, number: int, is_closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._is_closed = is_closed

    def write(self, data: Any) -> int:
        if self._is_closed:
            raise OutputFailed("standard output: is closed; send it to a file, or to /dev/null")
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EAGAIN):
                raise
            raise OutputFailed(f"standard output: {os.strerror(error.errno or 0)}; send it elsewhere") from None


class _Messages(io.FileIO):
    """Standard error whose failed writes are ignored."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(memoryview(data).cast("B"))


def guard_standard_streams() -> None:
    """Open closed standard streams, and make a failed write to standard output a one-line error.

    A stream that has been replaced, as in a test, is not changed.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    for _ in closed:  # each open gets the lowest free descriptor
        os.open(os.devnull, os.O_RDWR)
    if 1 in closed or _is_own(sys.stdout, sys.__stdout__):
        sys.stdout = _text(_Output(1, 1 in closed), sys.stdout)
    if 2 in closed or _is_own(sys.stderr, sys.__stderr__):
        sys.stderr = _text(_Messages(2), sys.stderr, line_buffering=True)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _is_own(stream: TextIO | None, first: TextIO | None) -> bool:
    return stream is not None and stream is first


def _text(raw: io.FileIO, before: TextIO | None, *, line_buffering: bool = False) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    # A file name that is not valid UTF-8 is printed as its bytes.
    errors = "surrogateescape" if encoding.lower().replace("-", "") == "utf8" else "backslashreplace"
    line_buffering = line_buffering or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=line_buffering)
