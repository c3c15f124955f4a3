"""Files of a local training beside the engine's blobs: its options, its node events, its figures.

They lie in the blob store with the checkpoints, so that a copy of one holds the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import BlobMissing, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.local_nodes.event_script import ScriptedEvent


class RunFiles:
    """The records of one job."""

    def __init__(self, blobs: Blobs, job_id: str) -> None:
        self._blobs, self._job_id = blobs, job_id
        self._root = JobPaths(job_id).root

    def check(self, options: Mapping[str, Any], has_same_data: Callable[[], bool]) -> bool:
        """Return whether the job was begun before.

        Parameters
        ----------
        options : {option as it is typed: its value}, JSON-able; all that must be equal for the job to resume.
        has_same_data : whether the file of another ``--data`` holds the job's data: its project may have moved.

        Raises
        ------
        InputError
            Naming the first option that differs.
        """
        before = self._read("begun")
        if before is None:
            paths = JobPaths(self._job_id)
            if any(self._blobs.list(prefix) for prefix in (paths.model, paths.checkpoints)):
                raise InputError(
                    f"job {self._job_id}: {self._blobs.url_of(self._root)} has a job of this id that was not begun by "
                    "proteus train; give another --job"
                )
            return False
        for name in {**options, **before}:
            if options.get(name) != before.get(name) and not (name == "--data" and has_same_data()):
                raise InputError(
                    f"{name} {_shown(options.get(name))}: job {self._job_id} was begun with "
                    f"{_shown(before.get(name))}; give that, or another --job"
                )
        return True

    @contextmanager
    def beginning(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Record the options of the job; remove the record if the context raises `InputError`."""
        before = self._read("begun")
        self._write("begun", dict(options))
        try:
            yield
        except InputError:
            if before is None:
                self._blobs.remove(f"{self._root}/begun.json")
            raise

    def applied_events(self) -> list[dict[str, Any]]:
        """Return the events carried out so far, in order, each with its clock and second."""
        return list(self._read("events") or [])

    def record_events(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Record all events carried out so far."""
        self._write("events", [dict(record) for record in records])

    def applied_events_of(self, script: Sequence[ScriptedEvent]) -> list[dict[str, Any]]:
        """Return the events of a script carried out so far: each happens once in the life of a job.

        Raises
        ------
        InputError
            If the script does not begin with them.
        """
        happened = self.applied_events()
        for number, record in enumerate(happened):
            wanted = script[number].record() if number < len(script) else None
            if wanted is None or any(record.get(name) != value for name, value in wanted.items()):
                raise InputError(
                    f"--events: job {self._job_id} has seen {record['at']},{record['action']},{record['node']}, "
                    "which the file does not have in its place; give the file that the job was begun with"
                )
        return happened

    def trained(self) -> dict[str, Any] | None:
        """Return the metadata of the job's model, None if there is none yet."""
        manifest = self._blobs.manifest(JobPaths(self._job_id).model)
        return None if manifest is None else dict(manifest.about)

    def figures(self) -> dict[str, Any] | None:
        """Return the figures of a job that has ended; None if they were not recorded."""
        found: dict[str, Any] | None = self._read("figures")
        return found

    def close(self, figures: Mapping[str, Any]) -> None:
        """Record the figures."""
        self._write("figures", dict(figures))

    def _read(self, name: str) -> Any:
        try:
            return self._blobs.read_json(f"{self._root}/{name}.json")
        except BlobMissing:
            return None

    def _write(self, name: str, value: Any) -> None:
        self._blobs.write_json(f"{self._root}/{name}.json", value)


def _shown(value: Any) -> str:
    return "nothing" if value is None or value == "" or value == {} else str(value)
