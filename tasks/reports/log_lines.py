"""Logs of the nodes of a job, read from the blob store; nodes and machines need not exist any more."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.announcement import job_directory
from proteus_spot.infra.local_market.job_stores import check_exists
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.alarms import Alarm, read_alarms
from proteus_spot.infra.storage.blobs import Blobs, open_blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.node_logs import EVERY_S, Incarnation, StoredLog, log_name, log_names
from proteus_spot.infra.urls import file_url, sqlite_url
from proteus_spot.tasks.reports.alarm_lines import alarm_line, recorded_alarms

_LAST_LINE_BYTES = 4096
#: Number of last lines of each log that following a whole job begins with.
_LAST_LINES = 10


@dataclass(frozen=True, slots=True)
class LogLine:
    """One incarnation of a node: size of its stored log in bytes, and the last line of it."""

    node: str
    incarnation: str
    role: str
    began_s: float
    bytes: int
    last_line: str


class JobLogs:
    """The logs of one job, in its run's directory or the blob store of the settings.

    Parameters
    ----------
    database
        URL of the state database, which shows whether the job has ended. Default: ``state.db`` in the run's directory,
        else the database of the settings.
    directory
        The run's directory, whose ``blobs`` hold the logs. Default: ``runs/<job>`` where that has blobs, else the blobs
        that the settings name.

    Raises
    ------
    InputError
        If there is no such directory or database, or the job is not in it: a line that lists the existing jobs.
    """

    def __init__(self, job_id: str, database: str | None = None, directory: Path | None = None) -> None:
        JobPaths(job_id)
        if directory is not None and not (directory / "blobs").is_dir():
            raise InputError(f"{directory}: holds no blobs; --dir names where the run kept its state")
        run_directory = job_directory(job_id, directory)
        local = (run_directory / "blobs").is_dir()
        self._job_id = job_id
        self._blobs = Blobs(file_url(run_directory / "blobs")) if local else open_blobs(load_settings())
        if database is not None:
            check_exists(database)
        elif local:
            state = run_directory / "state.db"  # `proteus train` writes none
            database = sqlite_url(state) if state.is_file() else None
        else:
            database = load_settings().database_url
            check_exists(database)
        self._database = database
        self._check_known()

    def alarms(self) -> list[str]:
        """Return the alarms that machines of the job have raised, one line each, oldest first."""
        recorded: list[Alarm] = []
        if self._database is not None:
            with Store.open(self._database) as store:
                recorded = recorded_alarms(store, self._job_id)
        return [alarm_line(alarm) for alarm in [*recorded, *read_alarms(self._blobs, self._job_id)]]

    def lines(self) -> list[LogLine]:
        """Return every incarnation of every node, by node and in order of time."""
        return [
            self._line(node, incarnation)
            for node, incarnations in log_names(self._blobs, self._job_id).items()
            for incarnation in incarnations
        ]

    def text(self, node: str, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield (incarnation, log) of a node in order of time; `only` those whose names begin with it.

        Raises
        ------
        InputError
            If there is no such node or incarnation: a line that lists the existing ones.
        """
        for incarnation in self._incarnations(node, only):
            yield incarnation.name, _shown(self._kept(node, incarnation).after(0))

    def follow(self, node: str, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield (incarnation, new text) of a node's logs until the job has ended.

        Raises
        ------
        InputError
            As `text` does.
        """
        self._incarnations(node, only)
        for _, incarnation, text in self._follow(lambda: {node: self._incarnations(node, only)}, from_end=False):
            yield incarnation.name, text

    def follow_all(self) -> Iterator[tuple[str, str]]:
        """Yield (node and process, text): the last lines of every log, then new text until the job has ended."""
        for node, incarnation, text in self._follow(lambda: log_names(self._blobs, self._job_id), from_end=True):
            yield f"{node} {incarnation.name}", text

    def _follow(
        self, incarnations: Callable[[], Mapping[str, Sequence[Incarnation]]], *, from_end: bool
    ) -> Iterator[tuple[str, Incarnation, str]]:
        """Yield new text of each process; with `from_end`, only the last lines of logs that exist at the start."""
        seen: dict[tuple[str, Incarnation], int] = {}
        clock = SystemClock()
        ended, first = False, True
        while True:
            for node, incarnation in [(node, each) for node, those in incarnations().items() for each in those]:
                offset = seen.get((node, incarnation), 0)
                log = self._kept(node, incarnation)
                if log.size > offset:
                    seen[node, incarnation] = log.size
                    text = _shown(log.after(offset))
                    yield node, incarnation, _last_lines(text) if first and from_end else text
            if ended:
                return
            first = False
            ended = self._ended()
            clock.wait_until(clock.now_s() + EVERY_S)  # also of an ended job: its nodes write a last time

    def _line(self, node: str, incarnation: Incarnation) -> LogLine:
        name = log_name(self._job_id, node, incarnation)
        end = _shown(self._blobs.read_end(name, _LAST_LINE_BYTES)).splitlines()
        return LogLine(
            node=node,
            incarnation=incarnation.name,
            role=incarnation.role,
            began_s=incarnation.began_s,
            bytes=self._blobs.size(name) or 0,
            last_line=end[-1] if end else "",
        )

    def _kept(self, node: str, incarnation: Incarnation) -> StoredLog:
        return StoredLog.parse(self._blobs.read_bytes(log_name(self._job_id, node, incarnation)))

    def _incarnations(self, node: str, only: str | None) -> list[Incarnation]:
        names = log_names(self._blobs, self._job_id)
        if node not in names:
            existing = f"there are {', '.join(names)}" if names else "there is none of any node yet"
            raise InputError(f"node {node}: has left no log of job {self._job_id}; {existing}")
        chosen = [incarnation for incarnation in names[node] if incarnation.name.startswith(only or "")]
        if not chosen:
            existing = ", ".join(incarnation.name for incarnation in names[node])
            raise InputError(
                f"--incarnation {only}: node {node} of job {self._job_id} has none such; there are {existing}"
            )
        return chosen

    def _check_known(self) -> None:
        if self._database is not None:
            with Store.open(self._database) as store:
                if store.jobs.find_job(self._job_id) is not None:
                    return
                jobs = [job.job_id for job in store.jobs.list_jobs()]
        else:
            jobs = sorted({name.split("/")[1] for name in self._blobs.list("jobs")})
        if self._job_id not in jobs:
            where = "the state database" if self._database is not None else self._blobs.url
            existing = f"there are {', '.join(jobs)}" if jobs else "there is none"
            raise InputError(f"job {self._job_id}: is not in {where}; {existing}")

    def _ended(self) -> bool:
        """Whether the job has ended; without a database, whether its model is stored."""
        if self._database is None:
            return self._blobs.manifest(JobPaths(self._job_id).model) is not None
        with Store.open(self._database) as store:
            job = store.jobs.find_job(self._job_id)
        return job is None or job.state.terminal


def _shown(data: bytes) -> str:
    return data.decode(errors="replace")


def _last_lines(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[-_LAST_LINES:])
