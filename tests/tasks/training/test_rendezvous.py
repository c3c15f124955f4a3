"""The address of a controller is believed where the market says that it is a living machine of the job's."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.nodes.controller_client import ControllerUnreachable, OtherVersion
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.version import program_version
from proteus_spot.psengine.protocol.protocol_version import PROTOCOL
from proteus_spot.tasks.training.running_controller import await_controller, find_controller, meet_controller
from tests.support.control_ports import served_control
from tests.support.task_runtime import TaskRuntime, plain, spec


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    """A job with one machine, which the market says is at 127.0.0.1."""
    made = TaskRuntime(tmp_path, monkeypatch)
    made.begin(spec())
    yield made
    made.close()


class Controller:
    """A controller that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.address = ""

    async def status(self, since_clock: int) -> dict[str, Any]:
        self.asked += 1
        return {"job_id": "job", "state": "running"}


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    with served_control({"status": made.status}) as address:
        made.address = address
        yield made


def write(here: TaskRuntime, controller: Controller, **changed: Any) -> None:
    """Write a rendezvous as the controller on the job's machine does, but for what is `changed`."""
    (machine,) = here.facts(spec())
    meeting = {"control": controller.address, "address": controller.address, "name": machine.instance_id}
    meeting |= {"protocol": PROTOCOL, "version": program_version()}
    here.runtime.blobs.write_json(JobPaths("job").rendezvous, meeting | changed)


def test_a_controller_on_a_machine_of_the_job_is_met(here: TaskRuntime, controller: Controller) -> None:
    write(here, controller)
    assert meet_controller("job", 5.0) == controller.address
    assert find_controller("job") == (controller.address, {"job_id": "job", "state": "running"})
    assert here.store.jobs.job("job").controller_address == controller.address


@pytest.mark.parametrize("changed", [{"name": "i-another"}, {"name": None}, {"control": "tcp://localhost:{port}"}])
def test_an_address_that_is_no_machine_of_the_job_is_never_called(
    here: TaskRuntime, controller: Controller, changed: dict[str, Any]
) -> None:
    port = controller.address.rpartition(":")[2]
    write(here, controller, **{key: value and value.format(port=port) for key, value in changed.items()})
    with pytest.raises(ControllerUnreachable, match="names no machine of the job that is alive"):
        meet_controller("job", 0.3)
    assert find_controller("job") is None
    assert controller.asked == 0
    assert here.store.jobs.job("job").controller_address is None


def test_a_machine_that_has_ended_is_not_called(here: TaskRuntime, controller: Controller) -> None:
    write(here, controller)
    here.market.terminate([fact.instance_id for fact in here.facts(spec())])
    with pytest.raises(ControllerUnreachable, match="names no machine of the job that is alive"):
        meet_controller("job", 0.3)
    assert controller.asked == 0


def test_nobody_is_believed_while_the_market_does_not_answer(
    here: TaskRuntime, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, controller)
    asked: list[object] = []

    def describe(*names: object) -> list[Any]:
        asked.append(names)
        raise MarketUnreachable("Unavailable", "later")

    monkeypatch.setattr(here.market, "describe", describe)
    with pytest.raises(ControllerUnreachable, match="names no machine of the job that is alive"):
        meet_controller("job", 0.5)
    assert len(asked) == 1, "it is not asked at each look at the blob store"
    assert controller.asked == 0


@pytest.mark.parametrize(
    "changed",
    [{"protocol": PROTOCOL + 1, "version": f"9.9.9 (protocol {PROTOCOL + 1})"}, {"protocol": None, "version": ""}],
)
def test_a_controller_of_another_version_is_named_with_ours(
    here: TaskRuntime, controller: Controller, changed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    write(here, controller, **changed)
    theirs = changed["version"] or "of an unknown version"
    line = f"job job: its controller runs Proteus {theirs}, and this program {program_version()}; install one version"
    with pytest.raises(OtherVersion) as caught:
        plain(await_controller)("job")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    with caplog.at_level(logging.WARNING):
        assert find_controller("job") is None, "its tick goes on"
    assert line in caplog.text
    assert controller.asked == 0
