"""The machines of the endpoint are processes: they run, get notices, are evicted, and never outlive it."""

import signal
import subprocess
import sys

import httpx
import psutil
import pytest

from proteus_spot.bidding.market.model import EndCause
from proteus_spot.infra.simulated_ec2 import instances as ec2_instances
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.endpoint_machines import CONTROL, launch_family, processes, token
from tests.support.market_servers import T0, TRACES, client, credentials, request, served, sold, wait_for
from tests.support.price_rows import HEADER, price_row
from tests.support.timeouts import PATIENCE


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
    assert len(processes(instance_id)) >= 4
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_endpoint(command, number):
    endpoint = command()
    instance_id = launch_family(endpoint.url, endpoint.work_dir)
    children = psutil.Process(endpoint.pid).children()  # the machine's, and the reaper
    endpoint.process.send_signal(number)
    assert endpoint.process.wait(20 * PATIENCE) == (-number if number is signal.SIGKILL else 0)
    wait_for(lambda: not processes(instance_id), "the family's end")
    _, alive = psutil.wait_procs(children, timeout=10 * PATIENCE)
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
            "proteus_spot.infra.simulated_ec2.server",
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
