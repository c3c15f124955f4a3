"""Two jobs of one queue in the world of `job_world`: the second is submitted while the first trains."""

from pathlib import Path
from typing import Any

import pytest

import proteus_spot.tasks.job_records
from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.storage.blobs import BlobMissing
from proteus_spot.infra.storage.leases import read_lease
from proteus_spot.studies.job_spec import JobSpec
from tests.support.flow_processes import Boundary, Process
from tests.support.job_training import Training, _Silent
from tests.support.job_world import BEGIN_S, JobWorld, spec

FIRST, SECOND = "first", "second"


class QueuedTraining(Training):
    """The controller of one job of the queue, on the machine that works for it by its lease."""

    def __init__(self, world: JobWorld, job: JobSpec) -> None:
        super().__init__(world, job.training.clocks or 0)
        self.job_id = job.job_id
        #: Number of calls that flow processes had made when it was started.
        self.begun_after = 0

    def order_of(self, fact: InstanceFact) -> str:
        try:
            return read_lease(self.world.blobs, fact.tags["proteus:job"], fact.instance_id).order
        except BlobMissing:
            return super().order_of(fact)

    def start(self, job: dict[str, Any], say: object = None, wait_s: float | None = None) -> dict[str, Any]:
        self.begun_after = self.begun_after or len(self.world.boundary.calls)
        return super().start(job, say, wait_s)


class Trainings:
    """The controllers of both jobs."""

    def __init__(self, *all_of_them: QueuedTraining) -> None:
        self.of = {each.job_id: each for each in all_of_them}

    def work(self, seconds: float) -> None:
        for each in self.of.values():
            each.work(seconds)

    def client(self, address: str, timeout_s: float = 10.0) -> Any:
        serving = [each for each in self.of.values() if each.serving() == address.removeprefix("tcp://")]
        return serving[0] if serving else _Silent()

    def find(self, blob_url: str, job_id: str, deadline_s: float, is_ours: Any = None) -> str:
        return self.of[job_id].find(blob_url, job_id, deadline_s, is_ours)


class QueueWorld(JobWorld):
    """See the module; `job_world.JobWorld` has the parameters.

    Parameters
    ----------
    submitted_after_s : seconds after the first job's begin at which the second is submitted.
    fields : of both jobs.
    """

    def __init__(
        self,
        directory: Path,
        patch: pytest.MonkeyPatch,
        boundary: Boundary,
        submitted_after_s: int = 1800,
        **fields: Any,
    ) -> None:
        taken_after_s = fields.pop("taken_after_s", 2400)
        self.first = spec(FIRST, queue="nightly", **fields)
        self.second = spec(SECOND, clocks=25, queue="nightly", **fields)
        super().__init__(directory, patch, boundary, self.first, taken_after_s=taken_after_s)
        self.events.append((float(BEGIN_S + submitted_after_s), QueueWorld._submit))

    def made_training(self) -> Trainings:
        return Trainings(QueuedTraining(self, self.first), QueuedTraining(self, self.second))

    def _submit(self) -> None:
        """Record the second job, as its run does before it waits and dies."""
        proteus_spot.tasks.job_records.record_job(self.second)

    def train_first(self) -> Process:
        """Run `train` of the first job, or run it again."""
        process = self.train()
        #: Number of calls that flow processes had made by then.
        self.ended_after = len(self.boundary.calls)
        return process

    def train_second(self) -> Process:
        """Run `train` of the second job, or run it again."""
        self.spec, self.job_id = self.second, SECOND
        return self.train()

    def spent(self) -> int:
        """What both ledgers hold."""
        return self.store.purchases.spent(FIRST) + self.store.purchases.spent(SECOND)
