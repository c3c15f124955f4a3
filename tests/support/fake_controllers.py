"""Stand-ins for the controllers of one job: one runs on whatever machine of the reliable tier is alive."""

from typing import Any

import pytest

import proteus_spot.tasks.supervision.job_stop
import proteus_spot.tasks.supervision.stop_answer
import proteus_spot.tasks.training.running_controller
from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.datasets.prepare import DataSummary
from proteus_spot.infra.nodes.controller_client import ControllerUnreachable
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.market.purchases.order_chains import CONTROLLER_ORDER, purchase
from tests.support.task_runtime import TaskRuntime

CLOCKS = 6
DATA = DataSummary("digits", "file:///data", 2, 10, 2, {"n_inputs": 3, "n_classes": 2, "n_examples": 10})


class FakeControllers:
    """The controllers of the job, one after the other.

    Each trains a clock with each status that is read, with a checkpoint of the last clock but one, and saves the model
    after the last one, or after the one under way when it is to stop.

    Attributes
    ----------
    silent : no controller answers; machines boot all the same.
    stuck : no clock ends any more.
    absent : instances that never join.
    """

    def __init__(self, here: TaskRuntime, clocks: int = CLOCKS) -> None:
        self._here = here
        self._clocks = clocks
        self.clock = 0
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.checkpoints = 0
        self.silent = False
        self.stuck = False
        self.absent: set[str] = set()

    def machine(self) -> InstanceFact | None:
        """The living machine that a controller runs on."""
        alive = [
            fact
            for fact in self._here.market.log()
            if fact.alive and purchase("job", fact.order_id) == CONTROLLER_ORDER
        ]
        return alive[0] if alive else None

    def address(self, *_: Any) -> str:
        """Return where the present one is, as `meet_controller` does."""
        machine = self.machine()
        if machine is None or self.silent:
            raise ControllerUnreachable("nothing answers")
        return f"tcp://{machine.order_id}"

    def client(self, address: str, _call_s: float) -> "FakeClient":
        """Return the way to call the one at `address`."""
        return FakeClient(self, address)

    @property
    def result(self) -> dict[str, Any]:
        """The result of a job that has ended now."""
        return {"clocks": self.clock, "stopped": self.stopped[0] if self.stopped else None, "lost_micro_tasks": 0}

    def describe(self, address: str) -> dict[str, Any]:
        """Return the status of the one at `address`."""
        begun = address in self.started
        done = begun and (self.clock >= self._clocks or (bool(self.stopped) and not self.stuck))
        if done:
            self._here.runtime.blobs.write_set(JobPaths("job").model, {}, self.result)
        state = "starting"
        if begun:
            state = ("stopped" if self.stopped else "finished") if done else "running"
        names = [fact.instance_id for fact in self._here.market.log() if fact.alive]
        return {
            "job_id": "job" if begun else None,
            "state": state,
            "reason": "",
            "clock": self.clock if begun else 0,
            "elapsed_s": 1.0,
            "losses": [],
            "nodes": [
                {"name": name, "state": "ready", "gone": False} for name in sorted(names) if name not in self.absent
            ],
            "notices": [],
            "stage": 1,
            "repeated_micro_tasks": 0,
            "result": self.result if done else None,
        }


class FakeClient:
    """Stands for `ControllerClient`."""

    def __init__(self, controllers: FakeControllers, address: str) -> None:
        self._all, self._address = controllers, address

    def start(self, config: dict[str, Any], *waits: Any) -> dict[str, Any]:
        """Start the training, from the last clock that was kept, or attach to it."""
        assert config["job_id"] == "job"
        self._answer()
        if self._address not in self._all.started:
            self._all.started.append(self._address)
            self._all.clock = max(self._all.clock - 1, 0)
        return self._all.describe(self._address)

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Train a clock, if there is anything to train, and return the status."""
        self._answer()
        ended = self._all.describe(self._address)["state"] in ("finished", "stopped")
        self._all.clock += self._address in self._all.started and not self._all.stuck and not ended
        status = self._all.describe(self._address)
        return status | {"losses": [[self._all.clock, 1 / self._all.clock]] if status["clock"] else []}

    def stop(self, reason: str) -> dict[str, Any]:
        """End at the clock under way."""
        self._answer()
        self._all.stopped.append(reason)
        return self._all.describe(self._address)

    def checkpoint(self) -> dict[str, Any]:
        """Count a checkpoint."""
        self._answer()
        self._all.checkpoints += 1
        return {"clock": self._all.clock, "error": ""}

    def drain(self, nodes: list[str], _deadline_s: float) -> dict[str, Any]:
        """Refuse: a machine is let go undrained."""
        self._answer()
        return {"draining": [], "refused": list(nodes)}

    def _answer(self) -> None:
        if self._all.address() != self._address:
            raise ControllerUnreachable(f"{self._address} does not answer")


def install(patch: pytest.MonkeyPatch, controllers: FakeControllers) -> None:
    """Have all of `tasks` meet the stand-ins."""
    for module in (
        proteus_spot.tasks.training.running_controller,
        proteus_spot.tasks.supervision.job_stop,
        proteus_spot.tasks.supervision.stop_answer,
    ):
        patch.setattr(module, "ControllerClient", controllers.client)
    patch.setattr(proteus_spot.tasks.training.running_controller, "meet_controller", controllers.address)
    for module in (proteus_spot.tasks.training.running_controller, proteus_spot.tasks.supervision.job_stop):
        patch.setattr(module, "prepare_data", lambda _spec: DATA)
