"""Read and atomically write the files that a user names by path or fsspec URL; every fault is one line."""

import codecs
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from proteus_spot.infra.errors import InputError, ProteusError, check_fetched

#: A file is a path, or a URL as in ``s3://bucket/prices.parquet``.
Source = str | Path

_CHUNK = 8 * 2**20
_GZIP_MAGIC = b"\x1f\x8b"
#: What an editor or a shell puts before text; the mark of UTF-32 begins as that of UTF-16 does.
_MARKS = (
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_whole(source: Source) -> bytes:
    """Return the content of `source` unchanged.

    Raises
    ------
    InputError
        If it cannot be read, or is what a failed download left.
    """
    with _errors_as_input_error(source, "read"):
        if not _is_url(source):
            data = Path(source).read_bytes()
        else:
            filesystem, path = fsspec.core.url_to_fs(str(source))
            if filesystem.isdir(path):
                raise IsADirectoryError
            data = bytes(filesystem.cat_file(path))
    check_fetched(source, data)
    return data


def read_chunks(source: Source) -> Iterator[bytes]:
    """Yield the content of `source`, some mebibytes at a time; for errors see `read_whole`."""
    with _errors_as_input_error(source, "read"):
        filesystem, path = (LocalFileSystem(), str(source)) if not _is_url(source) else fsspec.core.url_to_fs(source)
        if filesystem.isdir(path):
            raise IsADirectoryError
        with filesystem.open(path, "rb", block_size=_CHUNK) as file:
            first = True
            while chunk := file.read(_CHUNK):
                if first:
                    check_fetched(source, chunk)
                first = False
                yield chunk


def is_there(source: Source) -> bool:
    """Return whether the file exists; `InputError` if that cannot be determined."""
    with _errors_as_input_error(source, "read"):
        if not _is_url(source):
            return Path(source).is_file()
        filesystem, path = fsspec.core.url_to_fs(str(source))
        return bool(filesystem.isfile(path))


def is_folder(source: Source) -> bool:
    """Return whether there is a folder of this name; `InputError` if that cannot be determined."""
    with _errors_as_input_error(source, "read"):
        if not _is_url(source):
            return Path(source).is_dir()
        filesystem, path = fsspec.core.url_to_fs(str(source))
        return bool(filesystem.isdir(path))


def read_text(source: Source) -> str:
    """Return the content of `source` as text, unpacked where it is gzipped; `InputError` where it is not text."""
    data = as_utf8(source, unpacked(source, read_whole(source)))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{source}: row {row}: is not UTF-8 text; give a text file, plain or gzipped") from None


def has_mark(data: bytes) -> bool:
    """Return whether text begins with a byte order mark."""
    return any(data.startswith(mark) for mark, _ in _MARKS)


def as_utf8(source: Source, data: bytes) -> bytes:
    """Return text as UTF-8 without a byte order mark.

    Text that begins with a mark of UTF-16 or UTF-32 is converted: Windows PowerShell writes what a command prints so.

    Raises
    ------
    InputError
        If it is not what its mark says.
    """
    name = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    if name is None:
        return data
    if name == "UTF-8":
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode(name).encode()
    except UnicodeDecodeError as error:
        row = data[: error.start].decode(name, "replace").count("\n") + 1
        raise InputError(f"{source}: row {row}: is not {name} text, as its mark says; save it as UTF-8") from None


def is_packed(data: bytes) -> bool:
    """Return whether `data` is gzipped."""
    return data.startswith(_GZIP_MAGIC)


def unpacked(source: Source, data: bytes) -> bytes:
    """Return `data`, unpacked if it is gzipped; `InputError` if it is damaged."""
    if not is_packed(data):
        return data
    import pyarrow as pa  # a machine that runs trials reads files, and does not have it

    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "gzip") as stream:
            whole = bytes(stream.read())
    except OSError:
        raise damaged(source) from None
    check_fetched(source, whole)
    return whole


def damaged(source: Source) -> InputError:
    """Return the error for a gzip stream that cannot be unpacked."""
    return InputError(f"{source}: the gzip stream is damaged or cut short; fetch the file again")


def packed(data: bytes) -> bytes:
    """Return `data` gzipped; the same data give the same bytes."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "gzip") as stream:
        stream.write(data)
    packed_data: bytes = sink.getvalue().to_pybytes()
    return packed_data


def write_whole(target: Source, data: bytes) -> None:
    """Write `data` to `target` atomically.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    with _errors_as_input_error(target, "written"):
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
def _errors_as_input_error(source: Source, verb: str) -> Any:
    """Turn exceptions of a filesystem into one line."""
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
    except Exception as error:  # noqa: BLE001 - each filesystem has its own exceptions, and all mean the same here
        fix = "check the path" if verb == "read" else "give another place"
        raise InputError(f"{source}: cannot be {verb} ({_first_line(error)}); {fix}") from None


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without the number and the name, which stand before it
    return str(error).splitlines()[0] if str(error) else type(error).__name__
