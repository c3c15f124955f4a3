"""The logs of nodes and controllers in the blob store: one blob per process, which survives the machine.

Standard output and error go through `tee`, to the console and into a file in the machine's temporary directory. So the
console misses nothing, and the file has the last lines of a process that crashed or was killed. A thread writes the
file to ``jobs/<id>/logs/<node>/<incarnation>.log`` whenever it has grown. Object stores cannot append: each write is
the complete blob, and of a long log only the head and the tail are stored. If a process is killed, the next one of the
same node writes the rest of its log.
"""

import fcntl
import io
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths

logger = logging.getLogger(__name__)

#: Real seconds between two writes, which is what a killed process loses at most.
EVERY_S = 2.0
#: Maximum bytes that are stored of the beginning and of the end of a long log.
HEAD, TAIL = 256 * 1024, 4 * 1024 * 1024
#: Maximum real seconds that the end of a process waits for the last write.
_LAST_WRITE_S = 5.0
#: Maximum real seconds to wait for the end of `tee`; it goes on if a child process still has the output open.
_TEE_ENDS_S = 1.0
_ENDING = ".log"
_NAME = re.compile(r"(\d{8}T\d{6}\.\d{3})Z-([a-z]+)-(\d+)")
_STAMP = "%Y%m%dT%H%M%S.%f"
_LEFT_OUT = re.compile(rb"^\[proteus: (\d+) bytes are left out here\]\n", re.MULTILINE)
# It ends with its input. A signal to the whole group must not end it before: this process may still write.
_TEE = "trap '' INT TERM HUP PIPE; exec tee -a \"$0\""


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One process of a node; incarnations sort by their start.

    Parameters
    ----------
    stamp : start of the process in UTC (real time), as in ``20160601T120000.250``.
    role : ``controller`` or ``node``.
    """

    stamp: str
    role: str
    pid: int

    @classmethod
    def ours(cls, role: str) -> Self:
        """Return the incarnation of this process, which starts now."""
        now = datetime.fromtimestamp(SystemClock().now_s(), UTC)
        return cls(now.strftime(_STAMP)[:-3], role, os.getpid())

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the incarnation of a blob's `name`, with or without the ending; None for another name."""
        parts = _NAME.fullmatch(name.removesuffix(_ENDING))
        return None if parts is None else cls(parts[1], parts[2], int(parts[3]))

    @property
    def name(self) -> str:
        """Name of the blob without the ending."""
        return f"{self.stamp}Z-{self.role}-{self.pid}"

    @property
    def began_s(self) -> float:
        """Start of the process, in seconds since the Unix epoch, real time."""
        return datetime.strptime(self.stamp, _STAMP).replace(tzinfo=UTC).timestamp()


def log_name(job_id: str, node: str, incarnation: Incarnation) -> str:
    """Return the name of the blob that holds a log."""
    return f"{JobPaths(job_id).logs}/{node}/{incarnation.name}{_ENDING}"


def log_names(blobs: Blobs, job_id: str) -> dict[str, list[Incarnation]]:
    """Return the incarnations of every node with a stored log, in order, by the node's name."""
    top = JobPaths(job_id).logs
    by_node: dict[str, list[Incarnation]] = {}
    for name in blobs.list(top):
        node, _, file = name.removeprefix(f"{top}/").rpartition("/")
        incarnation = Incarnation.parse(file)
        if node and incarnation is not None:
            by_node.setdefault(node, []).append(incarnation)
    return {node: sorted(incarnations) for node, incarnations in sorted(by_node.items())}


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The stored part of a log: its `head`, and if `left_out` bytes are omitted after that, its `tail`."""

    head: bytes
    left_out: int = 0
    tail: bytes = b""

    @classmethod
    def of(cls, log: BinaryIO) -> Self:
        """Return the part of a log file to store now, in complete lines if it has any."""
        size = os.fstat(log.fileno()).st_size
        if size <= HEAD + TAIL:
            return cls(os.pread(log.fileno(), size, 0))
        head = os.pread(log.fileno(), HEAD, 0)
        head = head[: head.rfind(b"\n") + 1]
        tail = os.pread(log.fileno(), TAIL, size - TAIL)
        tail = tail[tail.find(b"\n") + 1 :]
        return cls(head, size - len(head) - len(tail), tail)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the log that a blob holds."""
        gap = _LEFT_OUT.search(data, 0, HEAD + 128)
        return cls(data) if gap is None else cls(data[: gap.start()], int(gap[1]), data[gap.end() :])

    @property
    def size(self) -> int:
        """Size of the complete log in bytes, omitted ones included."""
        return len(self.head) + self.left_out + len(self.tail)

    def after(self, offset: int) -> bytes:
        """Return the log after its first `offset` bytes, with a line in place of omitted bytes."""
        from_tail = len(self.head) + self.left_out
        if self.left_out and offset < from_tail:
            gap = f"[proteus: {self.left_out} bytes are left out here]\n".encode()
            return self.head[offset:] + gap + self.tail
        return self.head[offset:] if not self.left_out else self.tail[offset - from_tail :]


@contextmanager
def stored_logs(job_id: str, node: str, role: str, open_store: Callable[[], Blobs]) -> Iterator[None]:
    """Store the output of this process, standard output and error alike, until the context ends.

    No fault of it disturbs the work: without room for the file nothing is stored, and a failing store is retried at the
    next write; either is logged once.

    Parameters
    ----------
    role : ``controller`` or ``node``.
    open_store : returns the blobs; called on a separate thread.
    """
    writer = None
    try:
        writer = _LogWriter(job_id, node, Incarnation.ours(role), open_store)
        writer.open()
    except InputError:
        writer = None  # the work itself reports what is wrong with its job
    except OSError as error:
        writer = None
        logger.warning("the log of this process is not stored: %s", error)
    try:
        yield
    finally:
        if writer is not None:
            writer.close()


class _LogWriter:
    """Copies the output of this process to a file, and the file to the blob store."""

    def __init__(self, job_id: str, node: str, incarnation: Incarnation, open_store: Callable[[], Blobs]) -> None:
        self._blob = log_name(job_id, node, incarnation)
        # Only one process of a node lives per role, so other files in this folder are of earlier processes.
        folder = re.sub(r"[^\w.-]", "_", f"proteus-logs-{job_id}-{node}-{incarnation.role}")
        self._path = Path(tempfile.gettempdir()) / folder / f"{incarnation.name}{_ENDING}"
        self._open_store = open_store
        self._store: Blobs | None = None
        self._written = 0
        self._adopted = False
        self._failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-logs", daemon=True)

    def open(self) -> None:
        """Redirect the output through `tee`, and start the writing thread."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = os.fdopen(os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600), "rb")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # until this process ends; see `_adopt`
        self._consoles = os.dup(1), os.dup(2)
        out, into = os.pipe()
        try:
            self._tee = subprocess.Popen(
                ["/bin/sh", "-c", _TEE, str(self._path)], stdin=out, stdout=self._consoles[1], stderr=self._consoles[1]
            )
            self._redirect(into, into)
        except OSError:
            self._path.unlink()
            raise
        finally:
            os.close(out)
            os.close(into)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # an application's prints appear at once
        self._thread.start()

    def close(self) -> None:
        """Restore the console, and write the rest of the log, for a bounded time."""
        self._redirect(*self._consoles)
        for console in self._consoles:
            os.close(console)
        with suppress(subprocess.TimeoutExpired):
            self._tee.wait(_TEE_ENDS_S)
        self._ended.set()
        self._thread.join(_LAST_WRITE_S)
        if not self._thread.is_alive() and self._written == os.fstat(self._file.fileno()).st_size:
            self._path.unlink()
            with suppress(OSError):  # it still holds a file that could not be stored
                self._path.parent.rmdir()

    def _redirect(self, *targets: int) -> None:
        """Send standard output and error to these descriptors."""
        sys.stdout.flush()
        sys.stderr.flush()
        for number, target in zip((1, 2), targets, strict=True):
            os.dup2(target, number)

    def _run(self) -> None:
        while True:
            ended = self._ended.wait(EVERY_S)
            try:
                self._write_new()
                self._failed = False
            except Exception as error:  # noqa: BLE001 - whatever a store raises, the work goes on
                if not self._failed:
                    logger.warning("the log cannot be stored for now: %s", error)
                self._failed = True
            if ended:
                return

    def _write_new(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size == self._written and self._adopted:
            return
        self._store = self._store or self._open_store()
        if not self._adopted:
            self._adopt(self._store)
            self._adopted = True
        log = StoredLog.of(self._file)
        if log.size > self._written:
            self._store.write_bytes(self._blob, log.after(0))
            self._written = log.size

    def _adopt(self, store: Blobs) -> None:
        """Store the files of earlier processes of this node, which ended before they could."""
        for path in sorted(self._path.parent.glob(f"*{_ENDING}")):
            if path == self._path:
                continue
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # its process lives
                store.write_bytes(f"{self._blob.rpartition('/')[0]}/{path.name}", StoredLog.of(file).after(0))
                path.unlink()
