"""Following a job that loses its reliable tier: other machines are bought, and the training resumes its checkpoint.

The market is the simulated one in this process, and a stand-in for the controller runs on whatever machine of the
reliable tier there is, so that it goes when the machine goes.
"""

from collections.abc import Callable
from typing import Any

import pytest

import tasks.training.controller
import tasks.training.follow
from bidding.market.model import EndCause, InstanceFact
from infra.datasets.prepare import DataSummary
from infra.errors import JobFailed
from infra.nodes.controller_client import ControllerUnreachable
from tasks.market.engine_journal import JobEngine
from tasks.market.instances import secure_reliable_tier
from tasks.market.ledger import book_ledger
from tasks.training.controller import start_training
from tasks.training.follow import follow
from tests.support.task_runtime import BEGIN_S, ON_DEMAND, TaskRuntime, plain, spec

CLOCKS = 6
DATA = DataSummary("digits", "file:///data", 2, 10, 2, {"n_inputs": 3, "n_classes": 2, "n_examples": 10})


class Controllers:
    """The controllers of one job in turn; each trains a clock a look, with a checkpoint of the last clock but one."""

    def __init__(self, here: TaskRuntime) -> None:
        self._here = here
        self.clock = 0
        self.started: list[str] = []

    def machine(self) -> InstanceFact | None:
        """The machine of the reliable tier that is there, and that a controller runs on."""
        facts = self._here.facts(spec())
        alive = [fact for fact in facts if fact.alive and fact.token.startswith("job-reliable-0")]
        return alive[0] if alive else None

    def address(self, *_: Any) -> str:
        """Where the present one is; `wait_rendezvous` is asked for that."""
        machine = self.machine()
        if machine is None:
            raise ControllerUnreachable("nobody answers")
        return f"tcp://{machine.token}"

    def client(self, address: str, _call_s: float) -> "Client":
        """The way to call the one at `address`."""
        return Client(self, address)


class Client:
    """Stands for `ControllerClient`."""

    def __init__(self, controllers: Controllers, address: str) -> None:
        self._all, self._address = controllers, address

    def start(self, config: dict[str, Any]) -> dict[str, Any]:
        """Start the training, from the last clock that was kept."""
        assert config["job_id"] == "job"
        self._all.started.append(self._address)
        self._all.clock = max(self._all.clock - 1, 0)
        return self.status(0)

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Train a clock, if there is anything to train, and tell of it."""
        if self._all.address() != self._address:
            raise ControllerUnreachable(f"{self._address} does not answer")
        begun = self._address in self._all.started
        self._all.clock += begun
        done = begun and self._all.clock >= CLOCKS
        return {
            "job_id": "job" if begun else None,
            "state": "finished" if done else "running" if begun else "starting",
            "reason": "",
            "clock": self._all.clock if begun else 0,
            "elapsed_s": 1.0,
            "losses": [],
            "nodes": [],
            "stage": 1,
            "repeated_micro_tasks": 0,
            "result": {"clocks": CLOCKS} if done else None,
        }


@pytest.fixture
def controllers(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> Controllers:
    """The seams of following: controllers, data, and no Prefect."""
    made = Controllers(here)
    monkeypatch.setattr(tasks.training.controller, "ControllerClient", made.client)
    monkeypatch.setattr(tasks.training.controller, "wait_rendezvous", made.address)
    monkeypatch.setattr(tasks.training.controller, "prepare_data", lambda _spec: DATA)
    monkeypatch.setattr(tasks.training.controller, "start_training", plain(start_training))
    monkeypatch.setattr(tasks.training.follow, "secure_reliable_tier", plain(secure_reliable_tier))
    monkeypatch.setattr(tasks.training.follow._ProgressBar, "_set", lambda *_: None)
    return made


def following(
    here: TaskRuntime,
    monkeypatch: pytest.MonkeyPatch,
    controllers: Controllers,
    befalls: Callable[[int], None],
    reliable: int = 1,
) -> dict[str, Any]:
    """Begin the job and follow it to its end; `befalls` is told the number of each wait between two looks."""
    waits, job = 0, spec()
    job = job.model_copy(update={"reliable": job.reliable.model_copy(update={"count": reliable})})

    def wait_until(at_s: float, wake: object = None) -> bool:
        nonlocal waits
        waits += 1
        assert waits < 50, "the job does not come to its end"
        here.clock.at_s = at_s
        befalls(waits)
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    here.begin(job)
    address = controllers.address()
    here.store.set_controller("job", address)
    plain(start_training)(job, address, DATA)
    result: dict[str, Any] = plain(follow)(job, JobEngine(job.job_id))
    return result


def orders(here: TaskRuntime) -> list[tuple[str, EndCause | None]]:
    """What was bought to last, and how it ended."""
    return [(r.order_id, r.end_cause) for r in here.store.allocations("job") if r.allocation.bid_micros is None]


def test_a_reliable_tier_that_is_lost_is_bought_again_once_the_book_says_so(
    here: TaskRuntime, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    bought: list[list[tuple[str, EndCause | None]]] = []

    def befalls(wait: int) -> None:
        if wait == 2:
            machine = controllers.machine()
            assert machine is not None
            here.market.terminate([machine.instance_id])
        elif wait == 5:
            here.tick(spec())  # what has ended is written down by a tick
        bought.append(orders(here))

    result = following(here, monkeypatch, controllers, befalls)
    assert result == {"clocks": CLOCKS}
    first, second = "job-reliable-0", "job-reliable-0-again-1"
    assert bought[:5] == [[(first, None)]] * 4 + [[(first, EndCause.USER)]], "nothing on a mere silence"
    assert bought[5] == [(first, EndCause.USER), (second, None)], "by the next look"
    assert orders(here) == bought[5], "and no more"
    assert controllers.started == [f"tcp://{first}", f"tcp://{second}"]
    assert here.store.job("job").controller_address == f"tcp://{second}"
    plain(book_ledger)("job")
    spot = sum(20_000 for fact in here.market.log() if fact.bid_micros is not None)
    assert here.store.spent("job") == 2 * ON_DEMAND + spot
    assert here.clock.at_s < BEGIN_S + 3600


def test_the_controllers_machine_is_bought_again_where_another_of_the_tier_is_still_there(
    here: TaskRuntime, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def befalls(wait: int) -> None:
        if wait == 2:
            machine = controllers.machine()
            assert machine is not None
            here.market.terminate([machine.instance_id])
            here.tick(spec())

    assert following(here, monkeypatch, controllers, befalls, reliable=2) == {"clocks": CLOCKS}
    first, other, second = "job-reliable-0", "job-reliable-1", "job-reliable-0-again-1"
    assert orders(here) == [(first, EndCause.USER), (other, None), (second, None)]
    assert controllers.started == [f"tcp://{first}", f"tcp://{second}"]


def test_a_controller_that_is_silent_on_a_machine_that_is_there_is_waited_for(
    here: TaskRuntime, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def befalls(wait: int) -> None:
        if wait == 1:
            controllers.started.clear()  # its process was killed, and the machine has started it anew
        here.tick(spec())

    assert following(here, monkeypatch, controllers, befalls) == {"clocks": CLOCKS}
    assert orders(here) == [("job-reliable-0", None)]
    assert controllers.started == ["tcp://job-reliable-0"]


def test_a_reliable_tier_that_cannot_be_had_again_ends_the_following(
    here: TaskRuntime, controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def befalls(_wait: int) -> None:
        machine = controllers.machine()
        if machine is not None:
            here.market.terminate([machine.instance_id])
            here.tick(spec())

    with pytest.raises(JobFailed, match="the reliable tier was lost 6 times; see who ends it"):
        following(here, monkeypatch, controllers, befalls)
    assert len(orders(here)) == 6
