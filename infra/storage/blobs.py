"""Blobs under one URL: data, models, logs and the rendezvous of every job.

A thin layer on fsspec (``file://``, ``s3://``, ``memory://``). A single write is atomic: a reader sees the old bytes or
the new ones. A *set* of files exists when its manifest does; the manifest is written last and holds size and digest of
each file, so that an incomplete or damaged set is never taken for a complete one.
"""

import hashlib
import io
import json
import os
import struct
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from proteus_spot.infra.errors import InputError, ProteusError, check_fetched
from proteus_spot.infra.json_values import finite
from proteus_spot.infra.storage.conditional_writes import locked_file, swap_object
from proteus_spot.infra.urls import local_path

if TYPE_CHECKING:
    from proteus_spot.infra.settings import Settings

MANIFEST = "manifest.json"
#: Ending of the temporary files that a killed process may leave; never listed.
_UNFINISHED = ".new"


#: Bytes of a large file that are in memory at a time. An object store takes parts of 5 MiB and more.
CHUNK = 8 * 2**20


#: Held while this process replaces a blob of a filesystem that has no conditional writes.
_SWAPPING = threading.Lock()

#: Content of a file of a set.
Content = bytes | Path | Iterator[bytes]


class BlobError(ProteusError):
    """A blob could not be read or written."""


class BlobMissing(BlobError):
    """The blob or the set does not exist."""


class DamagedSet(BlobError):
    """A file is not what was written: it is not JSON, or differs from the manifest of its set."""


class _SourceError(Exception):
    """What was to be written could not be read: no fault of the store."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The size in bytes and the digest of a file in a manifest."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a set by name, and the facts that its writer stored with it."""

    files: Mapping[str, FileRecord]
    about: Mapping[str, Any] = field(default_factory=dict)


class Blobs:
    """The blobs under `url`. Names are relative, with ``/`` between their parts.

    Parameters
    ----------
    url : fsspec URL of a folder or of a prefix in a bucket.
    storage_options : what the filesystem behind the URL wants besides (for s3, see `open_blobs`).
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url.rstrip("/")
        try:
            path = local_path(self.url)  # which fsspec would cut at ::
            if path is None:
                self._fs, self._root = fsspec.core.url_to_fs(self.url, **dict(storage_options or {}))
            else:
                self._fs, self._root = LocalFileSystem(), path
        except (ValueError, ImportError) as error:
            raise InputError(f"PROTEUS_BLOB_URL: {url}: {error}; want file://, s3:// or another fsspec URL") from None

    def url_of(self, name: str) -> str:
        """Return the URL of a blob or of a prefix."""
        return f"{self.url}/{_check(name)}"

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a blob atomically; `BlobError` if that fails."""
        path = self._path(name)
        with self._errors_as_blob_error(name, "write"):
            if isinstance(self._fs, LocalFileSystem):
                _replace(path, (data,))
            else:
                self._fs.pipe_file(path, data)  # a put on an object store appears when it is complete

    def swap(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Write a blob if its content is still `old`; return whether it was. `BlobError` if that fails.

        Of several processes that replace the same content at once one does, in a folder and in a bucket of S3. Another
        filesystem has no such writes: there each of several may do so in the same moment.

        Parameters
        ----------
        old : the content that was read before; None: there was no blob.
        """
        path = self._path(name)
        with self._errors_as_blob_error(name, "write"):
            if self.url.startswith("s3://"):
                return swap_object(self._fs, path, old, new)
            with locked_file(path) if isinstance(self._fs, LocalFileSystem) else _SWAPPING:
                try:
                    found = self.read_bytes(name)
                except BlobMissing:
                    found = None
                if found == old:
                    self.write_bytes(name, new)
                return found == old

    def write_chunks(self, name: str, chunks: Iterable[bytes]) -> FileRecord:
        """Write a blob atomically, a chunk at a time; return its size and digest.

        Raises
        ------
        BlobError
            If the store does not take it. What `chunks` raises is raised unchanged, and no blob is written then.
        """
        path, digest, size = self._path(name), hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            try:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    yield chunk
            except Exception as error:
                raise _SourceError(error) from error

        try:
            with self._errors_as_blob_error(name, "write"):
                if isinstance(self._fs, LocalFileSystem):
                    _replace(path, counted())
                else:
                    self._put(path, counted())
        except _SourceError as failed:
            raise failed.error from None
        return FileRecord(size, digest.hexdigest())

    def _put(self, path: str, chunks: Iterator[bytes]) -> None:
        """Write an object, which appears when it is complete."""
        if isinstance(self._fs, MemoryFileSystem):  # its files appear when they are opened
            self._fs.pipe_file(path, b"".join(chunks))
            return
        file = self._fs.open(path, "wb", block_size=CHUNK)
        try:
            for chunk in chunks:
                file.write(chunk)
        except BaseException:
            file.discard()
            file.closed = True  # so that its end writes no rest
            raise
        file.close()

    def read_chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a blob, at most `CHUNK` bytes at a time; `BlobMissing` if there is none."""
        with self._errors_as_blob_error(name, "read"), self._fs.open(self._path(name), "rb", block_size=CHUNK) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def read_bytes(self, name: str) -> bytes:
        """Return a blob; `BlobMissing` if there is none."""
        with self._errors_as_blob_error(name, "read"):
            return bytes(self._fs.cat_file(self._path(name)))

    def read_end(self, name: str, size: int) -> bytes:
        """Return the last `size` bytes of a blob, or all of a smaller one; `BlobMissing` if there is none."""
        with self._errors_as_blob_error(name, "read"):
            path = self._path(name)
            begin = max(0, int(self._fs.info(path)["size"]) - size)
            return bytes(self._fs.cat_file(path, start=begin))

    def write_json(self, name: str, value: Any) -> None:
        """Write `value` as JSON; a number that is not finite becomes null."""
        self.write_bytes(name, json.dumps(finite(value), indent=1, allow_nan=False).encode())

    def read_json(self, name: str) -> Any:
        """Return the value of a JSON blob."""
        data = self.read_bytes(name)
        try:
            return json.loads(data)
        except ValueError as error:
            check_fetched(self.url_of(name), data)
            raise DamagedSet(f"{self.url_of(name)}: is not JSON: {' '.join(str(error).split())[:200]}") from None

    def write_npz(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write named arrays; the same arrays give the same bytes."""
        self.write_bytes(name, npz_bytes(arrays))

    def read_npz(self, name: str) -> dict[str, np.ndarray]:
        """Return named arrays; nothing in the file is executed."""
        return npz_arrays(self.read_bytes(name), self.url_of(name))

    def exists(self, name: str) -> bool:
        """Return whether the blob exists."""
        with self._errors_as_blob_error(name, "look for"):
            return bool(self._fs.exists(self._path(name)))

    def remove(self, name: str) -> None:
        """Remove a blob; a missing one is not an error."""
        with self._errors_as_blob_error(name, "remove"):
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                return

    def remove_set(self, prefix: str) -> None:
        """Remove a set, its manifest first: its rest is never taken for complete. A missing set is not an error."""
        self.remove(f"{prefix}/{MANIFEST}")
        with self._errors_as_blob_error(prefix, "remove"):
            if self._fs.exists(self._path(prefix)):
                self._fs.rm(self._path(prefix), recursive=True)

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of all blobs under `prefix`, sorted; empty if there are none."""
        top = self._path(prefix) if prefix else self._root
        with self._errors_as_blob_error(prefix, "list"):
            self._fs.invalidate_cache()
            found = self._fs.find(top)
        names = (path.removeprefix(self._root).lstrip("/") for path in found)
        return sorted(name for name in names if not name.endswith(_UNFINISHED))

    def write_set(
        self,
        prefix: str,
        files: Mapping[str, Content] | Iterable[tuple[str, Content]],
        about: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Write files under `prefix` and their manifest last.

        Parameters
        ----------
        files : mapping or pairs of name and content: bytes, their chunks, or the path of a file. Pairs may be made one
            at a time, and files are read in chunks, so that a large set need not fit into memory.
        about : JSON object that is stored in the manifest.
        """
        self.remove(f"{prefix}/{MANIFEST}")  # from here on the old set does not exist, whatever happens
        records = {}
        for name, data in files.items() if isinstance(files, Mapping) else files:
            if name == MANIFEST or name in records:
                raise ValueError(f"{prefix}: a set cannot hold {name} twice, nor a file of the manifest's name")
            if isinstance(data, bytes):
                self.write_bytes(f"{prefix}/{name}", data)
                records[name] = FileRecord(len(data), hashlib.sha256(data).hexdigest())
            else:
                chunks = file_chunks(data) if isinstance(data, Path) else data
                records[name] = self.write_chunks(f"{prefix}/{name}", chunks)
        manifest = Manifest(records, dict(about or {}))
        body = {name: {"size": record.size, "sha256": record.sha256} for name, record in records.items()}
        self.write_json(f"{prefix}/{MANIFEST}", {"schema": 1, "files": body, "about": manifest.about})
        return manifest

    def manifest(self, prefix: str) -> Manifest | None:
        """Return the manifest of a set; None if there is no complete set."""
        name = f"{prefix}/{MANIFEST}"
        try:
            body = self.read_json(name)
        except BlobMissing:
            return None
        try:
            files = {file: FileRecord(int(of["size"]), str(of["sha256"])) for file, of in body["files"].items()}
            return Manifest(files, dict(body.get("about", {})))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DamagedSet(
                f"{self.url_of(name)}: is not a manifest of ours; remove the set and write it again"
            ) from None

    def read_set(self, prefix: str) -> dict[str, bytes]:
        """Return the files of a set, each checked against the manifest.

        Raises
        ------
        BlobMissing
            If there is no manifest, hence no set.
        DamagedSet
            Naming the first file that is missing or differs.
        """
        manifest = self.manifest(prefix)
        if manifest is None:
            raise BlobMissing(f"{self.url_of(prefix)}: no {MANIFEST}, so there is no set of files (yet)")
        return {name: self.read_checked(prefix, name, manifest) for name in manifest.files}

    def read_checked(self, prefix: str, name: str, manifest: Manifest) -> bytes:
        """Return one file of a set; `DamagedSet` if it differs from `manifest`."""
        where = self.url_of(f"{prefix}/{name}")
        if name not in manifest.files:
            raise BlobMissing(f"{where}: the manifest names no such file")
        wanted = manifest.files[name]
        try:
            data = self.read_bytes(f"{prefix}/{name}")
        except BlobMissing:
            raise DamagedSet(f"{where}: is in the manifest and not there; write the set again") from None
        digest = hashlib.sha256(data).hexdigest()
        if digest != wanted.sha256:
            check_fetched(where, data)
        _check_content(where, wanted, len(data), digest)
        return data

    def fetch_checked(self, prefix: str, name: str, manifest: Manifest, target: Path) -> None:
        """Write one file of a set to `target` in chunks; `DamagedSet` if it differs from `manifest`."""
        where = self.url_of(f"{prefix}/{name}")
        wanted, digest, size = manifest.files[name], hashlib.sha256(), 0
        with target.open("wb") as file:
            try:
                for chunk in self.read_chunks(f"{prefix}/{name}"):
                    digest.update(chunk)
                    size += file.write(chunk)
            except BlobMissing:
                raise DamagedSet(f"{where}: is in the manifest and not there; write the set again") from None
        _check_content(where, wanted, size, digest.hexdigest())

    def size(self, name: str) -> int | None:
        """Return the size of a blob in bytes; None if there is none."""
        with self._errors_as_blob_error(name, "look for"):
            try:
                return int(self._fs.info(self._path(name))["size"])
            except FileNotFoundError:
                return None

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{_check(name)}"

    @contextmanager
    def _errors_as_blob_error(self, name: str, verb: str) -> Iterator[None]:
        """Turn exceptions of a filesystem into one line that names the blob."""
        where = f"{self.url}/{name}"
        try:
            yield
        except FileNotFoundError:
            raise BlobMissing(f"{where}: is not there") from None
        except (ProteusError, _SourceError):
            raise
        except Exception as error:  # each filesystem has its own exceptions, and all mean the same here
            cause = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise BlobError(f"{where}: cannot {verb} it: {cause}") from error


def open_blobs(settings: "Settings") -> Blobs:
    """Return the blobs that the settings name, with the region for a bucket."""
    return blobs_at(settings.blob_url, settings.region)


def blobs_of_process(url: str) -> Blobs:
    """Return the blobs under `url`, with the other settings of this process (a bucket's region)."""
    from proteus_spot.infra.settings import load_settings

    return open_blobs(load_settings().model_copy(update={"blob_url": url}))


def blobs_at(url: str, region: str) -> Blobs:
    """Return the blobs under `url`; a bucket is in `region`."""
    options: dict[str, Any] = {}
    if url.startswith("s3://"):
        # Listings are not cached, because other machines write too.
        options = {"client_kwargs": {"region_name": region}, "use_listings_cache": False}
    return Blobs(url, options)


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the .npz file of `arrays`; ValueError for arrays of Python objects."""
    buffer = io.BytesIO()
    write_npz_file(buffer, arrays)
    return buffer.getvalue()


def write_npz_file(target: Path | io.BytesIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays` as an .npz file; ValueError for arrays of Python objects."""
    np.savez(target, allow_pickle=False, **{name: np.asarray(array, order="C") for name, array in arrays.items()})


#: What NumPy, zipfile and zlib raise for a damaged archive, or one that claims more than fits into memory.
_NPZ_ERRORS = (
    *(ValueError, OSError, EOFError, KeyError, AttributeError, TypeError, OverflowError, MemoryError, RuntimeError),
    *(SyntaxError, struct.error, zipfile.BadZipFile, zlib.error),
)


def npz_arrays(data: bytes | Path, where: str) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file; `BlobError` with `where` if it is invalid, or holds Python objects.

    Parameters
    ----------
    data : the file's content, or its path.
    """
    try:
        begin = next(file_chunks(data), b"") if isinstance(data, Path) else data
        if begin.startswith(b"\x93NUMPY"):
            raise ValueError("it is a single array; save it under its name")
        with np.load(data if isinstance(data, Path) else io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except _NPZ_ERRORS as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BlobError(f"{where}: is not a readable .npz file of plain arrays: {reason}") from None


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file on this machine, at most `CHUNK` bytes at a time."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _check_content(where: str, wanted: FileRecord, size: int, sha256: str) -> None:
    if size != wanted.size:
        raise DamagedSet(f"{where}: has {size} bytes, not {wanted.size}; write the set again")
    if sha256 != wanted.sha256:
        raise DamagedSet(f"{where}: its content differs from the manifest's digest; write the set again")


def _check(name: str) -> str:
    parts = name.split("/")
    if not name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise InputError(f"blob name {name!r}: want relative names without empty parts, . or ..")
    return name


def _replace(path: str, chunks: Iterable[bytes]) -> None:
    folder, base = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    handle, new = tempfile.mkstemp(prefix=f".{base}.", suffix=_UNFINISHED, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())  # before the name exists, so that no power cut leaves an empty file under it
        os.chmod(new, 0o644)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise
