"""Files that were damaged or mistyped, made from valid ones; and how much memory reading one may take."""

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from proteus_spot.infra.errors import InputError, ProteusError

#: What stands in files by mistake.
_PIECES: tuple[bytes, ...] = (
    *(
        b"\0",
        b'"',
        b"'",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"\t",
        b",",
        b",,",
        b";",
        b"-",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"null",
    ),
    *(b"\xff", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\xff\xfe\0\0", b"\xc3", "€".encode(), b"true", b"NaN"),
    *(b"-1", b"0", b"1e308", b"1e400", b"-1e400", b"9" * 30, b"9" * 5000, b"Infinity", b"0x10", b"1_0", b"\xd9\xa1"),
    *(b"0001-01-01T00:00:00Z", b"0000-00-00T00:00:00Z", b"9999-12-31T23:59:59Z", b"1970-01-01T00:00:00Z"),
    *(b"0001-01-01T00:00:00+14:00", b"1459468800000", b"2016-02-30", b"9999-12-31", b"99999-01-01T00:00:00Z"),
    *(b"[" * 3000, b'{"a":' * 3000, b"\\ud800", b"\\u0000", b" " * 70_000),
)


def _at(draw: Any, data: bytes) -> int:
    return int(draw(st.integers(0, len(data))))


def _one_change(draw: Any, data: bytes) -> bytes:
    kind = draw(
        st.sampled_from(("flip", "cut", "drop", "insert", "replace", "number", "twice", "line", "crlf", "wide"))
    )
    at, end = sorted((_at(draw, data), _at(draw, data)))
    if kind == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    if kind == "drop":
        return data[:at] + data[min(end, at + 40) :]
    if kind == "insert":
        return data[:at] + draw(st.sampled_from(_PIECES)) + data[at:]
    if kind == "replace":
        return data[:at] + draw(st.sampled_from(_PIECES)) + data[min(end, at + 12) :]
    if kind == "number":
        starts = [index for index in range(len(data)) if data[index : index + 1].isdigit()]
        if starts:
            begin = draw(st.sampled_from(starts))
            return data[:begin] + draw(st.sampled_from(_PIECES)) + data[begin + 1 :]
    if kind == "twice":
        return data[:end] + data[at:end] + data[end:]
    if kind == "line":
        lines = data.splitlines(keepends=True)
        index = draw(st.integers(0, max(len(lines) - 1, 0)))
        return b"".join(
            (*lines[:index], *lines[index : index + 1] * draw(st.sampled_from((0, 2))), *lines[index + 1 :])
        )
    if kind == "crlf":
        return data.replace(b"\n", b"\r\n")
    if kind == "wide":
        encoding = draw(st.sampled_from(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "cp1252")))
        return data.decode("latin-1").encode(encoding, "replace")
    return data


@st.composite
def damaged(draw: Any, seeds: dict[str, bytes]) -> bytes:
    """Draw one of the valid `seeds`, changed once to four times, perhaps packed, and perhaps changed once more then."""
    data = seeds[draw(st.sampled_from(sorted(seeds)))]
    for _ in range(draw(st.integers(0, 4))):
        data = _one_change(draw, data)
    pack = draw(st.sampled_from((None, None, gzip.compress, bz2.compress, _zstd, zlib.compress)))
    if pack is not None:
        data = pack(data)
        if draw(st.booleans()):
            data = _one_change(draw, data)
    return data


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True)) if data else b""


def reads_or_refuses(
    read: Callable[[Path], Any], path: Path, data: bytes, refusal: type[ProteusError] = InputError
) -> Any:
    """Return what `read` makes of a file with this content; None where it refuses the file in one line."""
    path.write_bytes(data)
    try:
        return read(path)
    except refusal as error:
        message = str(error)
        assert message.strip(), "an error says something"
        assert len(message.splitlines()) == 1, message
        assert len(message) < 2000, message
        return None


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


@contextmanager
def at_most(grown_bytes: int) -> Iterator[None]:
    """Fail where the memory of this process grew by more than `grown_bytes` at any time within."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    except OSError:
        pytest.skip("the peak of this process's memory cannot be counted anew here")
    before = _resident_bytes()
    yield
    grown = _peak_bytes() - before
    assert grown <= grown_bytes, f"grew by {grown / 1e6:.0f} MB"
