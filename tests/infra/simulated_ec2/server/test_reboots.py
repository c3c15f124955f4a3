"""Machines that reboot, stop and start."""

import os

import httpx
import pytest

from proteus_spot.infra.clock import SystemClock
from tests.support.endpoint_machines import CONTROL, code_of, processes
from tests.support.market_servers import client, request, wait_for


def test_sixty_machines_start_within_a_second(endpoint):
    market = client(endpoint.url)
    market.describe()
    clock = SystemClock()
    began_s = clock.now_s()
    facts = market.launch(request("t", count=60, user_data="#!/bin/sh\nexec sleep 1000\n"))
    assert clock.now_s() - began_s < 1.0 * max(1.0, os.getloadavg()[0])
    assert len(facts) == 60


#: Installs a unit that counts its starts, counts its own, and stays.
WITH_UNIT = """#!/bin/bash
echo boot >> boots
cat > "$PROTEUS_UNIT_DIR/counting.service" <<'UNIT'
[Service]
ExecStart=/bin/sh -c "echo start >> starts; exec sleep 1000"
UNIT
systemctl enable --now counting.service
exec sleep 1000
"""


@pytest.fixture
def counted(endpoint, tmp_path):
    """An on-demand machine with a unit that runs; its home."""
    (fact,) = client(endpoint.url).launch(request("t", bid=None, user_data=WITH_UNIT))
    home = tmp_path / "machines" / fact.instance_id
    wait_for((home / "starts").exists, "the unit")
    return fact.instance_id, home


def lines(path):
    return path.read_text().splitlines()


def test_a_reboot_kills_what_runs_and_starts_the_units_but_not_the_user_data(counted, endpoint, ec2, sim):
    instance_id, home = counted
    before = processes(instance_id)
    ec2.reboot_instances(InstanceIds=[instance_id])
    wait_for(lambda: lines(home / "starts") == ["start", "start"], "the unit after the reboot")
    assert lines(home / "boots") == ["boot"]
    assert not set(before) & set(processes(instance_id))
    assert sim.fact(instance_id).alive
    ec2.reboot_instances(InstanceIds=[instance_id])
    wait_for(lambda: len(lines(home / "starts")) == 3, "the unit after a second reboot")
    client(endpoint.url).terminate([instance_id])
    wait_for(lambda: not processes(instance_id), "the machine's end")


def test_a_machine_that_ends_while_it_reboots_does_not_boot(counted, endpoint, ec2, sim):
    instance_id, _ = counted
    ec2.reboot_instances(InstanceIds=[instance_id])
    ec2.terminate_instances(InstanceIds=[instance_id])
    wait_for(lambda: not processes(instance_id), "the machine's end")
    assert sim.has_ended(instance_id)
    wait_for(lambda: not endpoint._machines._machines, "the machine to be forgotten")


def test_a_machine_without_units_stands_there_after_a_reboot(endpoint, ec2, sim, tmp_path):
    script = "#!/bin/bash\ntouch up\nexec sleep 1000\n"
    (fact,) = client(endpoint.url).launch(request("t", user_data=script))
    wait_for((tmp_path / "machines" / fact.instance_id / "up").exists, "the user-data")
    ec2.reboot_instances(InstanceIds=[fact.instance_id])
    wait_for(lambda: not processes(fact.instance_id), "the end of what ran")
    httpx.get(f"{endpoint.url}/_market/log", headers=CONTROL)
    assert sim.fact(fact.instance_id).alive


def test_a_stopped_machine_runs_nothing_until_it_is_started(counted, ec2, sim):
    instance_id, home = counted
    (change,) = ec2.stop_instances(InstanceIds=[instance_id])["StoppingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "stopped")
    wait_for(lambda: not processes(instance_id), "the stop")
    (instance,) = ec2.describe_instances()["Reservations"][0]["Instances"]
    assert instance["State"] == {"Code": 80, "Name": "stopped"}
    (change,) = ec2.start_instances(InstanceIds=[instance_id])["StartingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("stopped", "pending")
    wait_for(lambda: lines(home / "starts") == ["start", "start"], "the unit after the start")
    assert lines(home / "boots") == ["boot"]
    assert sim.fact(instance_id).alive
    ec2.terminate_instances(InstanceIds=[instance_id])
    assert code_of(ec2.start_instances, InstanceIds=[instance_id]) == "IncorrectInstanceState"
