"""Standard output and error where they are closed, full, or cannot show a character.

Python leaves ``sys.stdout`` None where it is closed, and gives its number to the next file that is opened.
"""

import errno
import io
import os
import sys
from typing import Any, TextIO

from infra.errors import ProteusError


class OutputFailed(ProteusError):
    """Standard output does not take what is written; the command ends with exit code 2."""

    exit_code = 2


class _Output(io.FileIO):
    """Standard output: what it does not take is an error in one line; that its reader has gone is none of ours."""

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
    """Standard error: a message that nobody can read ends nothing."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(memoryview(data).cast("B"))


def guard_standard_streams() -> None:
    """Open what is closed of the three standard streams, and say in one line what is wrong with standard output.

    A stream that is not the process's own, as in a test, stays as it is.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    for _ in closed:  # each takes the lowest number that is free
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
    # A name of a file that is no UTF-8 is printed as the bytes that it is.
    errors = "surrogateescape" if encoding.lower().replace("-", "") == "utf8" else "backslashreplace"
    line_buffering = line_buffering or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=line_buffering)
