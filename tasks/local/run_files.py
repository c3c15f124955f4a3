"""What a local training writes beside the engine's own blobs: how it was begun, what happened to its nodes, its figures.

They lie in the blob store with the checkpoints, so that whoever has the one has the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from infra.errors import InputError
from infra.local.node_events import ScriptedEvent
from infra.storage.blobs import BlobMissing, Blobs
from infra.storage.job_paths import JobPaths


class RunFiles:
    """The records of one job."""

    def __init__(self, blobs: Blobs, job_id: str) -> None:
        self._blobs, self._job_id = blobs, job_id
        self._root = JobPaths(job_id).root

    def check(self, options: Mapping[str, Any]) -> bool:
        """Return whether the job was begun before.

        Parameters
        ----------
        options : {option as it is typed: its value}, JSON-able; all that must be the same for the job to go on.

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
            if options.get(name) != before.get(name):
                raise InputError(
                    f"{name} {_shown(options.get(name))}: job {self._job_id} was begun with {_shown(before.get(name))}; "
                    "give that, or another --job"
                )
        return True

    @contextmanager
    def beginning(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Write down how the job was begun; take it back where the context finds that it cannot run so."""
        before = self._read("begun")
        self._write("begun", dict(options))
        try:
            yield
        except InputError:
            if before is None:
                self._blobs.remove(f"{self._root}/begun.json")
            raise

    def applied_events(self) -> list[dict[str, Any]]:
        """Return what was carried out so far, in order, each with the clock and the second at which it was."""
        return list(self._read("events") or [])

    def record_events(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write down all that was carried out so far."""
        self._write("events", [dict(record) for record in records])

    def applied_events_of(self, script: Sequence[ScriptedEvent]) -> list[dict[str, Any]]:
        """Return what was carried out so far of a script: each event happens once in the life of a job.

        Raises
        ------
        InputError
            If that is not how the script begins.
        """
        happened = self.applied_events()
        for number, record in enumerate(happened):
            wanted = script[number].record() if number < len(script) else None
            if wanted is None or any(record.get(name) != value for name, value in wanted.items()):
                raise InputError(
                    f"--events: job {self._job_id} has seen {record['at']},{record['action']},{record['node']}, which the "
                    "file does not have in its place; give the file that the job was begun with"
                )
        return happened

    def trained(self) -> dict[str, Any] | None:
        """Return what the job's model says of itself, None where there is none yet."""
        manifest = self._blobs.manifest(JobPaths(self._job_id).model)
        return None if manifest is None else dict(manifest.about)

    def figures(self) -> dict[str, Any] | None:
        """Return the figures of a job that has ended; None where nobody wrote them down."""
        found: dict[str, Any] | None = self._read("figures")
        return found

    def close(self, figures: Mapping[str, Any]) -> None:
        """Write the figures down."""
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
