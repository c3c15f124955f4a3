"""What a node says, kept in the job's blobs: one object an incarnation of its process, which outlives the machine.

Standard output and error go through `tee`, to the console as before and into a file of the machine's scratch. So nothing
is held back from the console, and the file has the last words of a process that crashed or was killed. A thread
writes the file's text to ``jobs/<id>/logs/<node>/<incarnation>.log`` whenever there is something new. Object stores
cannot append: each write is the whole object, and of a long log only its beginning and its end are kept. What a killed
process had not written yet is written by the next one of the same node, where there is one.
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

from infra.clock import SystemClock
from infra.errors import InputError
from infra.storage.blobs import Blobs
from infra.storage.job_paths import JobPaths

logger = logging.getLogger(__name__)

#: Real seconds between two writes, hence what a killed process loses at most.
EVERY_S = 2.0
#: Bytes of a long log that are kept of its beginning, and of its end.
HEAD, TAIL = 256 * 1024, 4 * 1024 * 1024
#: Real seconds that the end of a process waits for the last write.
_LAST_WRITE_S = 5.0
#: Real seconds that `tee` has to end; one that does not serves a process that we started and that goes on.
_TEE_ENDS_S = 1.0
_ENDING = ".log"
_NAME = re.compile(r"(\d{8}T\d{6}\.\d{3})Z-([a-z]+)-(\d+)")
_STAMP = "%Y%m%dT%H%M%S.%f"
_LEFT_OUT = re.compile(rb"^\[proteus: (\d+) bytes are left out here\]\n", re.MULTILINE)
# It ends with its input. A signal to the whole group must not end it before that: we still have something to say.
_TEE = "trap '' INT TERM HUP PIPE; exec tee -a \"$0\""


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One process of a node; they sort by the time at which they began.

    Parameters
    ----------
    stamp : UTC (real time) at which it began, as in ``20160601T120000.250``.
    role : ``controller`` or ``node``.
    """

    stamp: str
    role: str
    pid: int

    @classmethod
    def ours(cls, role: str) -> Self:
        """Return that of this process, which begins now."""
        now = datetime.fromtimestamp(SystemClock().now_s(), UTC)
        return cls(now.strftime(_STAMP)[:-3], role, os.getpid())

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return what `name` says, with or without its ending; None for a name that is none of ours."""
        parts = _NAME.fullmatch(name.removesuffix(_ENDING))
        return None if parts is None else cls(parts[1], parts[2], int(parts[3]))

    @property
    def name(self) -> str:
        """How it is called."""
        return f"{self.stamp}Z-{self.role}-{self.pid}"

    @property
    def began_s(self) -> float:
        """When it began, in seconds since the Unix epoch, real time."""
        return datetime.strptime(self.stamp, _STAMP).replace(tzinfo=UTC).timestamp()


def log_name(job_id: str, node: str, incarnation: Incarnation) -> str:
    """Return the name of the blob that holds a log."""
    return f"{JobPaths(job_id).logs}/{node}/{incarnation.name}{_ENDING}"


def log_names(blobs: Blobs, job_id: str) -> dict[str, list[Incarnation]]:
    """Return the incarnations of every node of a job that has kept a log, in order, by the node's name."""
    top = JobPaths(job_id).logs
    found: dict[str, list[Incarnation]] = {}
    for name in blobs.list(top):
        node, _, file = name.removeprefix(f"{top}/").rpartition("/")
        incarnation = Incarnation.parse(file)
        if node and incarnation is not None:
            found.setdefault(node, []).append(incarnation)
    return {node: sorted(incarnations) for node, incarnations in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class StoredLog:
    """What an object holds of a log: its `head`, and where `left_out` bytes are missing after that, its `tail`."""

    head: bytes
    left_out: int = 0
    tail: bytes = b""

    @classmethod
    def of(cls, log: BinaryIO) -> Self:
        """Return what is to be kept of a log file as it is now: whole lines, where it has any."""
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
        """Return what an object says."""
        gap = _LEFT_OUT.search(data, 0, HEAD + 128)
        return cls(data) if gap is None else cls(data[: gap.start()], int(gap[1]), data[gap.end() :])

    @property
    def size(self) -> int:
        """Bytes of the whole log, with those that are left out."""
        return len(self.head) + self.left_out + len(self.tail)

    def after(self, offset: int) -> bytes:
        """Return what the log says after its first `offset` bytes, with a line where something is left out."""
        from_tail = len(self.head) + self.left_out
        if self.left_out and offset < from_tail:
            gap = f"[proteus: {self.left_out} bytes are left out here]\n".encode()
            return self.head[offset:] + gap + self.tail
        return self.head[offset:] if not self.left_out else self.tail[offset - from_tail :]


@contextmanager
def kept_logs(job_id: str, node: str, role: str, open_store: Callable[[], Blobs]) -> Iterator[None]:
    """Keep what this process says, by whatever means, until the context ends.

    Nothing of it disturbs the work: where there is no room for the file, nothing is kept, and a store that fails is
    tried again at the next turn; each is told once.

    Parameters
    ----------
    role : ``controller`` or ``node``.
    open_store : returns the blobs; called on a thread of its own.
    """
    keeper = None
    try:
        keeper = _Keeper(job_id, node, Incarnation.ours(role), open_store)
        keeper.open()
    except InputError:
        keeper = None  # the work itself says what is wrong with its job
    except OSError as error:
        keeper = None
        logger.warning("no log of this process is kept: %s", error)
    try:
        yield
    finally:
        if keeper is not None:
            keeper.close()


class _Keeper:
    """Copies what this process says to a file, and the file to the blob store."""

    def __init__(self, job_id: str, node: str, incarnation: Incarnation, open_store: Callable[[], Blobs]) -> None:
        self._blob = log_name(job_id, node, incarnation)
        # Only one process of a node in a role lives at a time, so whatever else is in there was left behind.
        place = re.sub(r"[^\w.-]", "_", f"proteus-logs-{job_id}-{node}-{incarnation.role}")
        self._path = Path(tempfile.gettempdir()) / place / f"{incarnation.name}{_ENDING}"
        self._open_store = open_store
        self._store: Blobs | None = None
        self._written = 0
        self._adopted = False
        self._failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-logs", daemon=True)

    def open(self) -> None:
        """Send our output through `tee`, and begin to write."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = os.fdopen(os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600), "rb")
        fcntl.flock(self._file, fcntl.LOCK_EX)  # as long as we live; see `_adopt`
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
            sys.stdout.reconfigure(line_buffering=True)  # what an application prints is told when it is printed
        self._thread.start()

    def close(self) -> None:
        """Give the console back, and write what is left, for a bounded time."""
        self._redirect(*self._consoles)
        for console in self._consoles:
            os.close(console)
        with suppress(subprocess.TimeoutExpired):
            self._tee.wait(_TEE_ENDS_S)
        self._ended.set()
        self._thread.join(_LAST_WRITE_S)
        if not self._thread.is_alive() and self._written == os.fstat(self._file.fileno()).st_size:
            self._path.unlink()
            with suppress(OSError):  # something was left behind in it that could not be written
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
                self._turn()
                self._failed = False
            except Exception as error:  # noqa: BLE001 - whatever a store raises, the work goes on
                if not self._failed:
                    logger.warning("the log is not kept for now: %s", error)
                self._failed = True
            if ended:
                return

    def _turn(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size == self._written and self._adopted:
            return
        self._store = self._store or self._open_store()
        if not self._adopted:
            self._adopt(self._store)
            self._adopted = True
        kept = StoredLog.of(self._file)
        if kept.size > self._written:
            self._store.write_bytes(self._blob, kept.after(0))
            self._written = kept.size

    def _adopt(self, store: Blobs) -> None:
        """Write what earlier processes of this node left, which died before they could."""
        for path in sorted(self._path.parent.glob(f"*{_ENDING}")):
            if path == self._path:
                continue
            with path.open("rb") as left:
                try:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # it lives
                store.write_bytes(f"{self._blob.rpartition('/')[0]}/{path.name}", StoredLog.of(left).after(0))
                path.unlink()
