"""Files that a user names, by path or by fsspec URL: read whole, written whole or not at all, every fault in one line."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa

from infra.errors import InputError, ProteusError

#: A file is a path, or a URL as in ``s3://bucket/prices.parquet``.
Source = str | Path

_GZIP_MAGIC = b"\x1f\x8b"


def read_whole(source: Source) -> bytes:
    """Return the content of `source` as it is.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with _told(source, "read"):
        if not _is_url(source):
            return Path(source).read_bytes()
        filesystem, path = fsspec.core.url_to_fs(str(source))
        if filesystem.isdir(path):
            raise IsADirectoryError
        return bytes(filesystem.cat_file(path))


def is_there(source: Source) -> bool:
    """Return whether there is such a file; `InputError` where that cannot be told."""
    with _told(source, "read"):
        if not _is_url(source):
            return Path(source).is_file()
        filesystem, path = fsspec.core.url_to_fs(str(source))
        return bool(filesystem.isfile(path))


def read_text(source: Source) -> str:
    """Return the content of `source` as text, unpacked where it is gzipped; `InputError` where it is no text."""
    data = unpacked(source, read_whole(source))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{source}: row {row}: is not UTF-8 text; give a text file, plain or gzipped") from None


def is_packed(data: bytes) -> bool:
    """Return whether `data` is gzipped."""
    return data.startswith(_GZIP_MAGIC)


def unpacked(source: Source, data: bytes) -> bytes:
    """Return `data`, unpacked where it is gzipped; `InputError` where it is damaged."""
    if not is_packed(data):
        return data
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "gzip") as stream:
            return bytes(stream.read())
    except OSError:
        raise damaged(source) from None


def damaged(source: Source) -> InputError:
    """Return what is said of a gzip stream that cannot be unpacked."""
    return InputError(f"{source}: the gzip stream is damaged or cut short; fetch the file again")


def packed(data: bytes) -> bytes:
    """Return `data` gzipped; the same data give the same bytes."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "gzip") as stream:
        stream.write(data)
    packed_data: bytes = sink.getvalue().to_pybytes()
    return packed_data


def write_whole(target: Source, data: bytes) -> None:
    """Write `data` to `target`, whole or not at all.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    with _told(target, "written"):
        if _is_url(target):
            filesystem, name = fsspec.core.url_to_fs(str(target))
            filesystem.pipe_file(name, data)
            return
        path = Path(os.path.realpath(target))  # a link stays one
        if str(target).startswith(("/dev/", "/proc/")) or (path.exists() and not path.is_file()):
            Path(target).write_bytes(data)  # a pipe or a device takes no other file's place
            return
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            scratch.write_bytes(data)
            if path.exists():
                shutil.copymode(path, scratch)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


def _is_url(source: Source) -> bool:
    return isinstance(source, str) and "://" in source


@contextmanager
def _told(source: Source, verb: str) -> Any:
    """Turn what a filesystem says into one line."""
    try:
        yield
    except ProteusError:
        raise
    except FileNotFoundError as error:
        if verb == "read":
            raise InputError(f"{source}: there is no such file; check the path") from None
        raise InputError(f"{source}: cannot be {verb} ({_first_line(error)}); give another place") from None
    except IsADirectoryError:
        raise InputError(f"{source}: is a directory; name a file in it") from None
    except PermissionError:
        raise InputError(f"{source}: may not be {verb} by this user; change its permissions") from None
    except Exception as error:  # noqa: BLE001 - each filesystem has errors of its own, and all mean the same here
        mend = "check the path" if verb == "read" else "give another place"
        raise InputError(f"{source}: cannot be {verb} ({_first_line(error)}); {mend}") from None


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without the number and the name, which stand before it
    return str(error).splitlines()[0] if str(error) else type(error).__name__
