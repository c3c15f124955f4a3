"""The blob names of a job."""

import re
from dataclasses import dataclass

from proteus_spot.infra.errors import InputError

#: File of a prepared data set with the held-out part, which is not trained on.
HELD_OUT = "heldout.npz"
_JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class JobPaths:
    """The names of a job's blobs and sets, relative to the blob store.

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
        """Prefix of all blobs of the job."""
        return f"jobs/{self.job_id}"

    @property
    def rendezvous(self) -> str:
        """JSON with the address of the controller."""
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
        """The set of the trained model and its result."""
        return f"{self.root}/model"

    @property
    def best(self) -> str:
        """Prefix of the best model that was evaluated, a set under the number of its clock."""
        return f"{self.root}/best"

    @property
    def checkpoints(self) -> str:
        """Prefix of the checkpoints, each a set of one file per shard."""
        return f"{self.root}/checkpoints"

    @property
    def report(self) -> str:
        """The HTML report at the end of the job."""
        return f"{self.root}/report.html"

    @property
    def logs(self) -> str:
        """Prefix of the nodes' logs."""
        return f"{self.root}/logs"

    def tls_key(self, role: str) -> str:
        """JSON with the key of a role (`infra.tls`)."""
        return f"{self.root}/tls/{role}.json"

    def lease(self, instance_id: str) -> str:
        """JSON with the time until which a machine may live."""
        return f"{self.root}/leases/{instance_id}.json"

    @property
    def lease_check(self) -> str:
        """JSON that is written to see whether leases can be, while the job holds no machine."""
        return f"{self.root}/lease-check.json"

    @property
    def alarms(self) -> str:
        """Prefix of the alarms that machines raise."""
        return f"{self.root}/alarms"

    def alarm(self, instance_id: str) -> str:
        """JSON with the last alarm of a machine."""
        return f"{self.alarms}/{instance_id}.json"


def part_name(partition: int) -> str:
    """Return the file name of a partition of a prepared data set, as in ``part-00012.npz``."""
    return f"part-{partition:05d}.npz"
