"""Where the files of a job lie in the blob store."""

import re
from dataclasses import dataclass

from infra.errors import InputError

#: The file of a prepared data set that nobody learns from.
HELD_OUT = "heldout.npz"
_JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Where the blobs of a job are.

    Raises
    ------
    InputError
        For a job id with other than lower-case letters, digits and dashes, or longer than 63.
    """

    job_id: str

    def __post_init__(self) -> None:
        if not _JOB_ID.fullmatch(self.job_id):
            raise InputError(
                f"job id {self.job_id!r}: want 1 to 63 lower-case letters, digits and dashes, no dash at the start"
            )

    @property
    def root(self) -> str:
        """All of the job's blobs."""
        return f"jobs/{self.job_id}"

    @property
    def rendezvous(self) -> str:
        """Where the controller says how it is reached."""
        return f"{self.root}/rendezvous.json"

    @property
    def data(self) -> str:
        """The set of input partitions and the held-out part."""
        return f"{self.root}/data"

    @property
    def code(self) -> str:
        """The set of one file that holds the user's application."""
        return f"{self.root}/code"

    @property
    def model(self) -> str:
        """The set that the job leaves."""
        return f"{self.root}/model"

    @property
    def checkpoints(self) -> str:
        """The checkpoints, each a set of one file a shard."""
        return f"{self.root}/checkpoints"

    @property
    def report(self) -> str:
        """The HTML report, as it was at the end."""
        return f"{self.root}/report.html"

    @property
    def logs(self) -> str:
        """The nodes' logs."""
        return f"{self.root}/logs"


def part_name(partition: int) -> str:
    """Return the file of a partition of a prepared data set, as in ``part-00012.npz``."""
    return f"part-{partition:05d}.npz"
