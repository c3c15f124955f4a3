"""The machines of the endpoint are processes: they run, get notices, are evicted, never survive. And details of EC2."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import httpx
import numpy as np
import psutil
import pytest
from botocore.exceptions import ClientError

from bidding.evictions.fit_capacity import availability_trace
from bidding.market.model import EndCause, Market
from bidding.market.traces import Trace, TraceSet
from infra.clock import ScaledClock, SystemClock
from infra.simulated_ec2 import instances as ec2_instances
from infra.simulated_ec2.faults import Fault, FaultKind
from infra.simulated_ec2.market import SimSpotMarket
from infra.simulated_ec2.process_reaper import INSTANCE_MARK
from infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from infra.simulated_ec2.server import KEY_HEADER
from tests.support.market_servers import (
    KEY,
    T0,
    TRACES,
    A,
    EndpointProcess,
    ManualClock,
    client,
    credentials,
    ec2_client,
    request,
    served,
    sold,
    wait_for,
)
from tests.support.price_rows import HEADER, price_row
from tests.support.timeouts import PATIENCE

CONTROL = {KEY_HEADER: KEY}
#: Starts a child in its own group, one in the background and one in its own session, and never exits.
FAMILY = """#!/bin/bash
trap '' TERM
sleep 997 &
setsid sleep 998 &
set -m
sleep 999 &
touch up
while :; do sleep 0.1; done
"""


@pytest.fixture
def clock():
    return ManualClock(T0 + 10)


@pytest.fixture
def sim(clock):
    return SimSpotMarket(TRACES, sold, clock.now_s)


@pytest.fixture
def endpoint(sim, clock, tmp_path, monkeypatch):
    credentials(monkeypatch)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        yield endpoint


@pytest.fixture
def ec2(endpoint):
    return ec2_client(endpoint.url)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Start the endpoint as a command, with a clock that practically stands still."""
    credentials(monkeypatch)
    scaled = ScaledClock.create(tmp_path / "clock", T0 + 10, 1e-6)
    started = []

    def start(*options):
        started.append(EndpointProcess(tmp_path, str(tmp_path / "clock"), options))
        started[-1].clock = scaled
        return started[-1]

    yield start
    for one in started:
        one.close()


def processes(instance_id):
    """Return the living processes that carry the instance's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(INSTANCE_MARK) == instance_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def launch_family(url, work_dir):
    """Launch a machine with a family of processes, and wait until all have started."""
    (fact,) = client(url).launch(request("family", user_data=FAMILY))
    wait_for((work_dir / fact.instance_id / "up").exists, "the user-data")
    wait_for(lambda: len(processes(fact.instance_id)) >= 5, "the family")
    return fact.instance_id


# Machines


def test_user_data_runs_in_a_clean_environment(endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("PROTEUS_SECRET", "hidden")
    script = "#!/bin/bash\nenv > env.new; echo out; echo err >&2; mv env.new env; exec sleep 1000\n"
    (fact,) = client(endpoint.url).launch(request("t", user_data=script))
    home = tmp_path / "machines" / fact.instance_id
    wait_for((home / "env").exists, "the user-data")
    told = dict(line.split("=", 1) for line in (home / "env").read_text().splitlines())
    assert told["HOME"] == str(home)
    assert told["TMPDIR"] == str(home / "tmp")
    assert told["AWS_EC2_METADATA_SERVICE_ENDPOINT"] == f"{endpoint.metadata_url}/{fact.instance_id}"
    shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert set(told) - shell == {
        *("PATH", "HOME", "TMPDIR", "LANG", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
        *("PROTEUS_MARKET", "PROTEUS_INSTANCE", "PROTEUS_UNIT_DIR"),
    }
    assert (home / "user-data").read_text() == script
    assert sorted((home / "console.log").read_text().split()) == ["err", "out"]


def test_an_eviction_takes_the_whole_family_at_once(endpoint, clock, sim, tmp_path):
    instance_id = launch_family(endpoint.url, tmp_path / "machines")
    clock.at_s = T0 + 999
    httpx.get(f"{endpoint.url}/_market/log", headers=CONTROL)
    assert len(processes(instance_id)) >= 5
    clock.at_s = T0 + 1000
    wait_for(lambda: not processes(instance_id), "the family's end")
    (fact,) = sim.log()
    assert (fact.ended_at_s, fact.end_cause) == (T0 + 1000, EndCause.EVICTED)


def test_a_termination_asks_first_and_does_not_wait(endpoint, sim, tmp_path, monkeypatch):
    monkeypatch.setattr(ec2_instances, "GRACE_S", 0.3)
    market = client(endpoint.url)
    polite = "#!/bin/bash\ntrap 'touch asked; exit' TERM\ntouch up\nwhile :; do sleep 0.05; done\n"
    (fact,) = market.launch(request("polite", user_data=polite))
    wait_for((tmp_path / "machines" / fact.instance_id / "up").exists, "the user-data")
    stubborn = launch_family(endpoint.url, tmp_path / "machines")
    market.terminate([fact.instance_id, stubborn])
    assert processes(stubborn)
    wait_for(lambda: not processes(fact.instance_id) and not processes(stubborn), "both machines' end")
    assert (tmp_path / "machines" / fact.instance_id / "asked").exists()
    assert {one.end_cause for one in sim.log()} == {EndCause.USER}


def test_a_machine_stays_on_when_its_script_ends_and_shutdown_ends_it(endpoint, sim, ec2, tmp_path):
    script = "#!/bin/bash\nsetsid sleep 998 &\ntouch up\n"
    (failed,) = client(endpoint.url).launch(request("failed", user_data=f"{script}exit 3\n"))
    (done,) = client(endpoint.url).launch(request("done", user_data=f"{script}shutdown -h now\n"))
    wait_for(lambda: sim.has_ended(done.instance_id), "the shut-down")
    wait_for(lambda: not processes(done.instance_id), "the end of what it left")
    (instance,) = ec2.describe_instances(InstanceIds=[done.instance_id])["Reservations"][0]["Instances"]
    assert instance["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert sim.fact(done.instance_id).end_cause is EndCause.USER
    wait_for((tmp_path / "machines" / failed.instance_id / "up").exists, "the user-data")
    wait_for(lambda: len(processes(failed.instance_id)) == 1, "the script's exit")
    assert sim.fact(failed.instance_id).alive


@pytest.mark.parametrize("user_data", ["", "#cloud-config\n", "#!/no/such/shell\n"])
def test_a_machine_without_a_script_that_runs_just_stands_there(endpoint, sim, tmp_path, user_data):
    (fact,) = client(endpoint.url).launch(request("t", user_data=user_data))
    console = tmp_path / "machines" / fact.instance_id / "console.log"
    wait_for(lambda: console.exists() and console.read_text(), "the console")
    assert sim.fact(fact.instance_id).alive


def test_an_instance_that_came_and_went_within_a_jump_runs_nothing(clock, tmp_path, monkeypatch):
    credentials(monkeypatch)
    sim = SimSpotMarket(TRACES, sold, clock.now_s, boot_s=60)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        (fact,) = client(endpoint.url).launch(request("t", user_data="#!/bin/sh\nsleep 1000\n"))
        clock.at_s = T0 + 5000
        httpx.get(f"{endpoint.url}/_market/log", headers=CONTROL)
        assert not (tmp_path / "machines" / fact.instance_id).exists()


# The end of the endpoint


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_endpoint(command, number):
    endpoint = command()
    instance_id = launch_family(endpoint.url, endpoint.work_dir)
    children = psutil.Process(endpoint.pid).children()  # the machine's, and the reaper
    endpoint.process.send_signal(number)
    assert endpoint.process.wait(20 * PATIENCE) == (-number if number is signal.SIGKILL else 0)
    wait_for(lambda: not processes(instance_id), "the family's end")
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_the_endpoint_ends_with_its_parent(command):
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        endpoint = command("--parent-pid", str(parent.pid))
        instance_id = launch_family(endpoint.url, endpoint.work_dir)
    finally:
        parent.kill()
        parent.communicate()
    assert endpoint.process.wait(20 * PATIENCE) == 0
    assert not processes(instance_id)


def test_a_jump_of_the_shared_clock_evicts_at_the_exact_second(command):
    endpoint = command("--notice-s", "60")
    instance_id = launch_family(endpoint.url, endpoint.work_dir)
    endpoint.clock.jump_to(T0 + 50_000)
    wait_for(lambda: not processes(instance_id), "the family's end")
    (row,) = endpoint.log()
    assert (row["market"], row["launched_at_s"], row["ended_at_s"], row["end_cause"], row["notice_at_s"]) == (
        *("c4.large/us-east-1a", T0 + 10, T0 + 1000, "evicted"),
        T0 + 1000,
    )


def test_variables_are_passed_by_name_alone(command, monkeypatch):
    monkeypatch.setenv("PASSED", "on")
    endpoint = command("--pass-env", "PASSED", "--pass-env", "NOT_THERE")
    script = '#!/bin/bash\necho "$PASSED" > new; mv new passed; exec sleep 1000\n'
    (fact,) = client(endpoint.url).launch(request("t", user_data=script))
    passed = endpoint.work_dir / fact.instance_id / "passed"
    wait_for(passed.exists, "the user-data")
    assert passed.read_text() == "on\n"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [("--prices", "no-such.csv", "no-such.csv"), ("--clock", "no-such-clock", "no-such-clock")],
)
def test_bad_input_is_one_line(tmp_path, option, value, told):
    prices = tmp_path / "prices.csv"
    prices.write_text(f"{HEADER}\n{price_row()}\n")
    given = {"--prices": str(prices), "--clock": "system", option: str(tmp_path / value)}
    options = [text for pair in given.items() for text in pair]
    announce = tmp_path / "announce"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "infra.simulated_ec2.server",
            *options,
            "--work-dir",
            tmp_path / "w",
            "--announce",
            announce,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
    assert not announce.exists()


# Metadata


def token(url):
    return httpx.put(f"{url}/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}).text


def test_metadata_wants_a_token_and_tells_of_the_taking(endpoint, clock):
    (fact,) = client(endpoint.url).launch(request("t", tags={"job": "j 1"}))
    base = f"{endpoint.metadata_url}/{fact.instance_id}"
    headers = {"X-aws-ec2-metadata-token": token(base)}

    def get(path, **more):
        return httpx.get(f"{base}/latest/meta-data/{path}", headers=headers, **more)

    assert httpx.get(f"{base}/latest/meta-data/instance-id").status_code == 401
    assert httpx.get(
        f"{base}/latest/meta-data/instance-id", headers={"X-aws-ec2-metadata-token": "made-up"}
    ).status_code == 401  # fmt: skip
    assert httpx.put(f"{base}/latest/api/token").status_code == 400
    for path, value in {
        "instance-id": fact.instance_id,
        "placement/availability-zone": "us-east-1a",
        "instance-type": "c4.large",
        "local-ipv4": "127.0.0.1",
        "instance-life-cycle": "spot",
        "tags/instance": "job",
        "tags/instance/job": "j 1",
    }.items():
        assert (get(path).status_code, get(path).text) == (200, value)
    assert get("no/such/thing").status_code == 404
    clock.at_s = T0 + 879
    assert get("spot/instance-action").status_code == 404
    clock.at_s = T0 + 880
    assert get("spot/instance-action").json() == {"action": "terminate", "time": "2016-03-01T00:16:40Z"}
    clock.at_s = T0 + 1000
    assert get("spot/instance-action").status_code == 404


def test_a_token_opens_its_own_machine_alone(endpoint):
    one, other = client(endpoint.url).launch(request("t", count=2))
    headers = {"X-aws-ec2-metadata-token": token(f"{endpoint.metadata_url}/{one.instance_id}")}
    url = f"{endpoint.metadata_url}/{other.instance_id}/latest/meta-data/instance-id"
    assert httpx.get(url, headers=headers).status_code == 401


# EC2's manners


def code_of(call, **params):
    with pytest.raises(ClientError) as error:
        call(**params)
    return error.value.response["Error"]["Code"]


RUN = {"ImageId": "ami-1", "InstanceType": "c4.large", "MinCount": 1, "MaxCount": 1}
SPOT = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.03"}}


def test_run_instances_by_hand(ec2):
    zone = {"AvailabilityZone": "us-east-1a"}
    reservation = ec2.run_instances(**RUN, Placement=zone, InstanceMarketOptions={"MarketType": "spot"})
    (instance,) = reservation["Instances"]
    assert instance["InstanceLifecycle"] == "spot"
    assert instance["LaunchTime"] == datetime.fromtimestamp(T0 + 10, UTC)
    (spot,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert spot["SpotPrice"] == "0.105000"  # no bid: that is on demand
    assert (spot["InstanceId"], spot["State"], spot["Status"]["Code"]) == (
        instance["InstanceId"],
        "active",
        "fulfilled",
    )
    assert code_of(ec2.run_instances, **RUN, DryRun=True) == "DryRunOperation"
    assert code_of(ec2.run_instances, **{**RUN, "MinCount": 2}) == "InvalidParameterCombination"
    assert code_of(ec2.run_instances, **RUN, InstanceInitiatedShutdownBehavior="stop") == "UnsupportedOperation"
    stay = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}
    assert code_of(ec2.run_instances, **RUN, InstanceMarketOptions=stay) == "UnsupportedOperation"
    bad = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "much"}}
    assert code_of(ec2.run_instances, **RUN, InstanceMarketOptions=bad) == "InvalidParameterValue"
    assert code_of(ec2.create_vpc, CidrBlock="10.0.0.0/16") == "InvalidAction"


def test_what_ec2_says_of_an_end_for_want_of_capacity(ec2, sim, clock):
    sim.availability = {A: availability_trace([1, 0], 900, T0)}
    ec2.run_instances(**RUN, InstanceMarketOptions=SPOT)
    clock.at_s = T0 + 900
    (asked,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (asked["State"], asked["Status"]["Code"]) == ("closed", "instance-terminated-no-capacity")


def test_what_ec2_says_of_an_end(ec2, clock):
    spot = ec2.run_instances(**RUN, InstanceMarketOptions=SPOT)["Instances"][0]["InstanceId"]
    mine = ec2.run_instances(**RUN)["Instances"][0]["InstanceId"]
    clock.at_s = T0 + 900
    (asked,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert asked["Status"]["Code"] == "marked-for-termination"
    assert asked["Status"]["UpdateTime"] == datetime.fromtimestamp(T0 + 880, UTC)
    (change,) = ec2.terminate_instances(InstanceIds=[mine])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    clock.at_s = T0 + 2000
    (asked,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (asked["State"], asked["Status"]["Code"]) == ("closed", "instance-terminated-by-price")
    assert asked["Status"]["UpdateTime"] == datetime.fromtimestamp(T0 + 1000, UTC)
    told = {one["InstanceId"]: one for group in ec2.describe_instances()["Reservations"] for one in group["Instances"]}
    assert told[spot]["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert told[mine]["StateTransitionReason"] == "User initiated (2016-03-01 00:15:00 GMT)"


def test_describe_instances_filters_and_pages(ec2, clock):
    for number in range(3):
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "n", "Value": f"v{number}"}]}]
        ec2.run_instances(**{**RUN, "MaxCount": 4}, TagSpecifications=tags)

    def found(page_size=1000, **params):
        pages = list(
            ec2.get_paginator("describe_instances").paginate(**params, PaginationConfig={"PageSize": page_size})
        )
        assert all(sum(len(r["Instances"]) for r in page["Reservations"]) <= page_size for page in pages)
        return [one["InstanceId"] for page in pages for r in page["Reservations"] for one in r["Instances"]]

    everything = found()
    assert len(everything) == 12
    assert found(page_size=5) == everything
    assert found(Filters=[{"Name": "tag:n", "Values": ["v1", "x"]}]) == everything[4:8]
    assert found(Filters=[{"Name": "tag:n", "Values": ["v*"]}]) == everything
    assert found(Filters=[{"Name": "instance-id", "Values": everything[:2]}]) == everything[:2]
    ec2.terminate_instances(InstanceIds=everything[:1])
    assert found(Filters=[{"Name": "instance-state-name", "Values": ["running"]}]) == everything[1:]
    assert found(InstanceIds=everything[3:5]) == everything[3:5]
    assert code_of(ec2.describe_instances, InstanceIds=["i-0123456789abcdef0"]) == "InvalidInstanceID.NotFound"
    assert code_of(ec2.describe_instances, InstanceIds=["nonsense"]) == "InvalidInstanceID.Malformed"
    assert code_of(ec2.describe_instances, Filters=[{"Name": "colour", "Values": ["red"]}]) == "InvalidParameterValue"
    assert code_of(ec2.describe_instances, NextToken="nonsense") == "InvalidNextToken"


def test_price_history_pages_fit_together_while_time_goes_on(clock, tmp_path, monkeypatch):
    credentials(monkeypatch)
    here, there = Market("c4.large", "us-east-1a"), Market("c4.large", "us-east-1b")
    times, prices = T0 + np.arange(2000), 20_000 + np.arange(2000)
    sim = SimSpotMarket(TraceSet({here: Trace(times, prices), there: Trace(times, prices)}), sold, clock.now_s)
    clock.at_s = T0 + 1499
    with served(sim, clock, tmp_path / "machines") as endpoint:
        ec2 = ec2_client(endpoint.url)
        rows, sizes, following = [], [], {}
        while True:
            page = ec2.describe_spot_price_history(**following, InstanceTypes=["c4.large"], MaxResults=5000)
            rows += page["SpotPriceHistory"]
            sizes.append(len(page["SpotPriceHistory"]))
            clock.at_s += 100
            if not page["NextToken"]:
                break
            following = {"NextToken": page["NextToken"]}
        windows = ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"]
    assert sizes == [1000, 1000, 1000]
    moments = [row["Timestamp"].timestamp() for row in rows]
    assert moments == sorted(moments, reverse=True)
    assert len({(row["AvailabilityZone"], row["Timestamp"]) for row in rows}) == 3000
    assert max(moments) == T0 + 1499
    assert rows[0]["SpotPrice"] == "0.021499"
    assert windows == []


def test_zones(ec2):
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    assert [zone["ZoneName"] for zone in zones] == ["us-east-1a", "us-east-1b"]


def test_the_control_routes(endpoint, sim):
    (fact,) = client(endpoint.url).launch(request("t", tags={"a": "b"}))
    assert httpx.post(f"{endpoint.url}/_market/fault", json={"kind": "flood"}, headers=CONTROL).status_code == 400
    fault = {"kind": "kill", "instance_id": fact.instance_id}
    assert httpx.post(f"{endpoint.url}/_market/fault", json=fault, headers=CONTROL).status_code == 200
    (row,) = httpx.get(f"{endpoint.url}/_market/log", headers=CONTROL).json()
    assert row == {
        "instance_id": fact.instance_id,
        "market": str(A),
        "state": "terminated",
        "launched_at_s": T0 + 10,
        "bid_micros": 30_000,
        "token": "t",
        "tags": {"a": "b"},
        "address": "",
        "notice_at_s": None,
        "ended_at_s": T0 + 10,
        "end_cause": "evicted",
        "end_reason": "Server.SpotInstanceTermination",
        "complete": True,
    }
    assert json.loads(json.dumps(row)) == row


def test_sixty_machines_start_within_a_second(endpoint):
    market = client(endpoint.url)
    market.describe()
    clock = SystemClock()
    began_s = clock.now_s()
    facts = market.launch(request("t", count=60, user_data="#!/bin/sh\nexec sleep 1000\n"))
    assert clock.now_s() - began_s < 1.0 * max(1.0, os.getloadavg()[0])
    assert len(facts) == 60


# Reboots, stops and starts

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


def test_a_spot_machine_of_a_one_time_request_cannot_be_stopped(ec2):
    spot = ec2.run_instances(**RUN, InstanceMarketOptions=SPOT)["Instances"][0]["InstanceId"]
    assert code_of(ec2.stop_instances, InstanceIds=[spot]) == "UnsupportedOperation"


def test_a_launch_that_accepts_fewer_gets_what_there_is(ec2, sim):
    """EC2: RunInstances launches as many as it can, between MinCount and MaxCount."""
    sim.add_fault(Fault(FaultKind.CAPACITY, available=2))
    run = {**RUN, "ClientToken": "part"}
    assert code_of(ec2.run_instances, **{**run, "MinCount": 3, "MaxCount": 5}) == "InsufficientInstanceCapacity"
    first = ec2.run_instances(**{**run, "MaxCount": 5})["Instances"]
    assert len(first) == 2
    again = ec2.run_instances(**{**run, "MaxCount": 5})["Instances"]
    assert [one["InstanceId"] for one in again] == [one["InstanceId"] for one in first]
    assert code_of(ec2.run_instances, **{**run, "MaxCount": 4}) == "IdempotentParameterMismatch"


def test_any_other_parameter_is_a_mismatch_and_a_token_without_a_zone_is_the_regions(ec2):
    """EC2: the token of a request that names no zone is regional, and every parameter counts."""
    run = {**RUN, "ClientToken": "t"}
    regional = ec2.run_instances(**run)["Instances"][0]["InstanceId"]
    zone = {"AvailabilityZone": "us-east-1a"}
    zonal = ec2.run_instances(**run, Placement=zone)["Instances"][0]["InstanceId"]
    assert zonal != regional
    assert ec2.run_instances(**run)["Instances"][0]["InstanceId"] == regional
    for other in (
        {"ImageId": "ami-2"},
        {"EbsOptimized": True},
        {"MetadataOptions": {"HttpTokens": "required"}},
        {"TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "a", "Value": "b"}]}]},
    ):
        assert code_of(ec2.run_instances, **{**run, **other}) == "IdempotentParameterMismatch"


def test_a_dry_run_buys_nothing_and_says_whether_the_right_is_there(ec2, sim):
    """EC2 answers DryRunOperation to who may, UnauthorizedOperation to who may not."""
    assert code_of(ec2.run_instances, **RUN, DryRun=True) == "DryRunOperation"
    sim.add_fault(Fault(FaultKind.DENIED, code="UnauthorizedOperation", operation="launch"))
    assert code_of(ec2.run_instances, **RUN, DryRun=True) == "UnauthorizedOperation"
    assert sim.log() == []


def test_a_spot_request_may_not_be_found_yet(clock, tmp_path, monkeypatch):
    """EC2 lists an instance before its spot request: InvalidSpotInstanceRequestID.NotFound, for some seconds."""
    credentials(monkeypatch)
    sim = SimSpotMarket(TRACES, sold, clock.now_s, behaviour=Ec2Behaviour(request_lag_s=(30, 30)))
    with served(sim, clock, tmp_path / "machines") as endpoint:
        ec2 = ec2_client(endpoint.url)
        (instance,) = ec2.run_instances(**RUN, InstanceMarketOptions=SPOT)["Instances"]
        asked = {"SpotInstanceRequestIds": [instance["SpotInstanceRequestId"]]}
        code = "InvalidSpotInstanceRequestID.NotFound"
        assert code_of(ec2.describe_spot_instance_requests, **asked) == code
        assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []
        clock.at_s += 30
        assert len(ec2.describe_spot_instance_requests(**asked)["SpotInstanceRequests"]) == 1


def test_a_rebalance_recommendation_is_in_the_metadata_of_its_machine(endpoint, sim):
    """EC2: events/recommendations/rebalance, since November 2020."""
    one, other = client(endpoint.url).launch(request("t", count=2))
    sim.add_fault(Fault(FaultKind.REBALANCE, instance_id=one.instance_id))

    def recommended(instance_id):
        base = f"{endpoint.metadata_url}/{instance_id}"
        headers = {"X-aws-ec2-metadata-token": token(base)}
        return httpx.get(f"{base}/latest/meta-data/events/recommendations/rebalance", headers=headers)

    assert recommended(one.instance_id).json() == {"noticeTime": "2016-03-01T00:00:10Z"}
    assert recommended(other.instance_id).status_code == 404
