"""Machines of a market without ticks: they train on until shortly before the lease ends, and are gone when it does."""

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proteus_spot.bidding.market.model import Tier
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.ec2.user_data import NodeBoot, user_data
from proteus_spot.infra.nodes.controller_client import ControllerClient, wait_rendezvous
from proteus_spot.infra.nodes.lease_guard import MachineFiles
from proteus_spot.infra.simulated_ec2.faults import FaultKind
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER
from proteus_spot.infra.storage.alarms import read_alarms
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.checkpoints import newest_clock
from proteus_spot.infra.storage.leases import ENDING_S, FIRST_S, Lease, write_leases
from tests.support.local_cluster import DEADLINE_S, digits_job
from tests.support.market_servers import T0, EndpointProcess, client, credentials, request, wait_for

JOB = "leased"


class LeasedMarket:
    """A market on a clock that a test jumps, and a bucket; it runs no tick."""

    def __init__(self, directory: Path) -> None:
        self.clock = ScaledClock.create(directory / "clock.json", T0 + 10, 1.0)
        self.blobs = Blobs((directory / "blobs").as_uri())
        self.job_id = JOB
        self._endpoint = EndpointProcess(directory, str(directory / "clock.json"))

    def launch(self, *, controller: bool = False, edit: tuple[str, str] = ("", "")) -> str:
        """Buy a machine on demand with the user-data that production gives it; return its id."""
        node = NodeBoot(
            JOB,
            self.blobs.url,
            Tier.RELIABLE,
            controller=controller,
            python=sys.executable,
            environment={"PROTEUS_CLOCK": str(self.clock._path), "PROTEUS_NODE_HOST": "127.0.0.1"},
            clock=str(self.clock._path),
        )
        script = user_data(node).replace(*edit) if edit[0] else user_data(node)
        (fact,) = client(self._endpoint.url).launch(request(f"{JOB}-{controller}", bid=None, user_data=script))
        return fact.instance_id

    def files(self, instance_id: str) -> MachineFiles:
        """What the guard of a machine keeps."""
        return MachineFiles(self._endpoint.work_dir / instance_id / "units")

    def extend(self, instance_id: str, lease: Lease) -> None:
        """Write a lease, and wait until the machine has read it."""
        wait_for(self.files(instance_id).known_lease, "the guard", DEADLINE_S)
        assert write_leases(self.blobs, JOB, {instance_id: lease}) == {}
        wait_for(lambda: self.files(instance_id).known_lease() == lease, "the machine to read its lease", 60)

    def ended_at_s(self, instance_id: str) -> int | None:
        """When a machine ended, by the market's own record."""
        (record,) = (record for record in self._endpoint.log() if record["instance_id"] == instance_id)
        return record["ended_at_s"]  # type: ignore[return-value]

    def reboot(self, instance_id: str) -> None:
        """Reboot a machine, as its user could."""
        fault = {"kind": FaultKind.REBOOT, "instance_id": instance_id}
        url, key = f"{self._endpoint.url}/_market/fault", {KEY_HEADER: self._endpoint.key_id}
        httpx.post(url, json=fault, headers=key).raise_for_status()

    def wait_end(self, instance_id: str) -> int:
        """Wait for the end of a machine."""
        wait_for(lambda: self.ended_at_s(instance_id) is not None, "the machine's end", DEADLINE_S)
        at_s = self.ended_at_s(instance_id)
        assert at_s is not None
        return at_s

    def reasons(self) -> list[str]:
        """The alarms in the bucket."""
        return [alarm.reason for alarm in read_alarms(self.blobs, JOB)]

    def close(self) -> None:
        self._endpoint.close()


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeasedMarket]:
    credentials(monkeypatch)
    one = LeasedMarket(tmp_path)
    yield one
    one.close()


@pytest.mark.slow
def test_without_ticks_a_job_trains_on_is_checkpointed_shortly_before_its_lease_ends_and_is_gone_then(
    market: LeasedMarket,
) -> None:
    instance_id = market.launch(controller=True)
    address = wait_rendezvous(market.blobs.url, JOB, DEADLINE_S)
    controller = ControllerClient(address, 10.0)
    controller.start(digits_job(market, features=200, n_shards=2, clocks=1_000_000).to_dict())  # type: ignore[arg-type]
    lease = Lease(T0 + 3600, f"{JOB}-True", "a tick")
    market.extend(instance_id, lease)
    market.clock.jump_to(lease.until_s - ENDING_S - 60)
    wait_for(lambda: controller.status()["clock"] > 3, "the training", DEADLINE_S)
    assert newest_clock(market.blobs, JOB) == 0
    market.clock.jump_to(lease.until_s - ENDING_S)
    wait_for(lambda: newest_clock(market.blobs, JOB) > 3, "the checkpoint", DEADLINE_S)
    wait_for(market.reasons, "the alarm")
    assert "no tick extends the lease of this machine: it ends at" in market.reasons()[0]
    clock = controller.status()["clock"]
    wait_for(lambda: controller.status()["clock"] > clock, "the training to go on", DEADLINE_S)
    assert market.ended_at_s(instance_id) is None
    market.clock.jump_to(lease.until_s)
    assert lease.until_s <= market.wait_end(instance_id)
    assert market.reasons() == ["the lease of this machine has ended: a tick"]
    assert newest_clock(market.blobs, JOB) > 3


def test_a_machine_of_an_ended_job_is_gone_at_the_end_of_its_paid_hour_without_an_alarm(market: LeasedMarket) -> None:
    market.clock.run_at(10.0)
    instance_id = market.launch()
    lease = Lease(T0 + 3600, f"{JOB}-False", "its job has ended", is_last=True)
    market.extend(instance_id, lease)
    market.clock.jump_to(lease.until_s - 1000)
    assert market.ended_at_s(instance_id) is None
    market.clock.jump_to(lease.until_s)
    assert lease.until_s <= market.wait_end(instance_id)
    assert market.reasons() == []


def test_a_machine_that_no_tick_finds_is_gone_after_its_first_lease(market: LeasedMarket) -> None:
    instance_id = market.launch()
    wait_for(market.files(instance_id).known_lease, "the guard", DEADLINE_S)
    lease = market.files(instance_id).known_lease()
    assert lease is not None
    assert 0 <= market.clock.now_s() - (lease.until_s - FIRST_S) <= DEADLINE_S
    wait_for(market.files(instance_id).instance_id, "the machine's name", DEADLINE_S)
    market.clock.jump_to(lease.until_s)
    assert int(lease.until_s) <= market.wait_end(instance_id)
    assert market.reasons() == ["the lease of this machine has ended: the first lease, from the launch on"]


def test_a_rebooted_machine_trains_nothing_and_ends_at_once(market: LeasedMarket) -> None:
    instance_id = market.launch()
    market.extend(instance_id, Lease(T0 + 86_400, f"{JOB}-False", "a tick"))
    assert market.ended_at_s(instance_id) is None
    market.reboot(instance_id)
    assert market.wait_end(instance_id) < T0 + 86_400
    assert market.reasons() == ["the start script has ended (it failed, or the machine was rebooted)"]


def test_a_machine_whose_script_fails_early_does_not_stay_on(market: LeasedMarket) -> None:
    instance_id = market.launch(edit=("NAME=''\n", "exit 1\n"))
    assert market.wait_end(instance_id) < T0 + FIRST_S
