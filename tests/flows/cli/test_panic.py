"""`proteus panic`: it ends the machines of one owner, and of no other, with nothing but the market at hand."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber
from click.testing import CliRunner, Result

import proteus_spot.tasks.panic
from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.flows.cli.commands.jobs.panic import panic
from proteus_spot.infra.ec2.owned_machines import OwnedMachine, OwnedMachines
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.local_market.environment import endpoint_file, own_directory
from proteus_spot.infra.runtime import forget_runtime, open_runtime
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.server import Endpoint
from proteus_spot.infra.state.identity import Identity, read_owner_files, write_owner_file
from proteus_spot.tasks.job_ends import request_stop
from tests.support.market_bill import bill_of, by_second
from tests.support.market_servers import KEY, OTHER_ACCOUNT, T0, TRACES, A, ManualClock, credentials, served, sold
from tests.support.sweep_world import SweepWorld, sweep_spec

OURS, THEIRS = "db-ours", "db-their*s"


@pytest.fixture
def sim() -> SimSpotMarket:
    return SimSpotMarket(TRACES, sold, ManualClock(T0 + 10).now_s)


@pytest.fixture
def endpoint(sim: SimSpotMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    credentials(monkeypatch)
    monkeypatch.setattr(proteus_spot.tasks.panic, "_LOOK_S", 0.01)
    with served(sim, ManualClock(T0 + 10), tmp_path / "machines") as endpoint:
        monkeypatch.setenv("PROTEUS_EC2_ENDPOINT_URL", endpoint.url)
        monkeypatch.setenv("PROTEUS_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/gone")
        forget_runtime()
        yield endpoint
    forget_runtime()


def launch(sim: SimSpotMarket, owner: str | None, job: str, count: int = 1) -> list[str]:
    tags = {"proteus:job": job} | ({} if owner is None else {"proteus:owner": owner})
    request = LaunchRequest(f"{owner}-{job}", A, count, None if job == "reliable" else 30_000, "", tags)
    return [fact.instance_id for fact in sim.launch(request)]


def living(sim: SimSpotMarket) -> set[str]:
    return {fact.instance_id for fact in sim.log() if fact.alive}


def call(*arguments: str) -> Result:
    return CliRunner().invoke(panic, arguments)


def test_the_machines_of_one_owner_end_and_no_others(endpoint: Endpoint, sim: SimSpotMarket, tmp_path: Path) -> None:
    ours = launch(sim, OURS, "a", 3) + launch(sim, OURS, "reliable")
    others = launch(sim, THEIRS, "a", 2) + launch(sim, None, "a") + launch(sim, OURS + "-2", "a")
    done = call("--owner", OURS, "--json", str(tmp_path / "ended.json"))
    assert done.exception is None, done.output
    assert living(sim) == set(others)
    assert all(f"ending {name} (c4.large/us-east-1a, job " in done.output for name in ours)
    assert "4 machines of owner db-ours in us-east-1 have ended" in done.output
    written = json.loads((tmp_path / "ended.json").read_text())
    assert {machine["instance_id"] for machine in written["machines"]} == set(ours)
    assert call("--owner", OURS).output.startswith("0 machines of owner db-ours")
    assert call("--owner", THEIRS).output.count("ending i-") == 2  # its star is not a wildcard
    assert len(living(sim)) == 2


def test_many_machines_are_listed_page_by_page(endpoint: Endpoint, sim: SimSpotMarket) -> None:
    for number in range(11):
        launch(sim, THEIRS, f"job-{number}", 100)
    ours = launch(sim, OURS, "a", 120)
    result = proteus_spot.tasks.panic.panic(OURS, None, lambda line: None)
    assert {machine.instance_id for machine in result.machines} == set(ours)
    assert len(living(sim)) == 1100


def test_a_machine_that_is_bought_meanwhile_ends_too(endpoint: Endpoint, sim: SimSpotMarket) -> None:
    launch(sim, OURS, "a")
    late: list[str] = []

    def tell(line: str) -> None:
        if not late:
            late.extend(launch(sim, OURS, "late"))

    result = proteus_spot.tasks.panic.panic(OURS, None, tell)
    assert late[0] in {machine.instance_id for machine in result.machines}
    assert living(sim) == set()


def test_without_an_owner_the_owners_are_listed_and_nothing_ends(endpoint: Endpoint, sim: SimSpotMarket) -> None:
    launch(sim, None, "a", 3)
    launch(sim, OURS, "a", 2)
    launch(sim, THEIRS, "a", 1)
    done = call()
    assert isinstance(done.exception, InputError)
    assert str(done.exception).endswith("name one: proteus panic --owner ID")
    assert re.findall(r"(db-\S+)\D+(\d+)", done.output) == [("db-ours", "2"), ("db-their*s", "1")]
    assert len(living(sim)) == 6


def test_the_owner_and_the_region_are_those_recorded_beside_the_database(
    endpoint: Endpoint, sim: SimSpotMarket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"  # the file itself is gone
    write_owner_file(url, Identity(OURS, ACCOUNT, "us-east-1"), endpoint.url)
    write_owner_file(f"sqlite:///{tmp_path}/elsewhere.db", Identity(THEIRS, ACCOUNT, "us-east-1"), None)
    monkeypatch.setenv("PROTEUS_DATABASE_URL", url)
    monkeypatch.setenv("PROTEUS_REGION", "eu-west-1")
    forget_runtime()
    launch(sim, OURS, "a", 2)
    others = launch(sim, THEIRS, "a")
    done = call()
    assert done.exception is None, done.output
    assert "2 machines of owner db-ours in us-east-1 have ended" in done.output
    assert living(sim) == set(others)


def test_a_database_that_was_made_anew_is_asked_for_its_owner_and_without_it_all_recorded_owners_count(
    endpoint: Endpoint, sim: SimSpotMarket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    monkeypatch.setenv("PROTEUS_DATABASE_URL", url)
    names = []
    for _ in range(4):
        (tmp_path / "state.db").unlink(missing_ok=True)
        forget_runtime()
        names.append(open_runtime().owner)
    forget_runtime()
    newest = launch(sim, names[-1], "new")
    older = launch(sim, names[0], "old", 2)
    done = call()
    assert done.exception is None, done.output
    assert f"1 machines of owner {names[-1]} in us-east-1 have ended" in done.output
    assert living(sim) == set(older), newest
    (tmp_path / "state.db").unlink()
    done = call()
    assert done.exception is None, done.output
    assert all(name in done.output for name in names)
    assert living(sim) == set()
    done = call()
    assert isinstance(done.exception, ProteusError), "which of them is meant is not known, and none lives"
    assert not isinstance(done.exception, InputError)
    assert "machines may live on: 4 owners are recorded" in str(done.exception)


def test_a_request_that_is_fulfilled_while_it_is_cancelled_is_found(
    endpoint: Endpoint, sim: SimSpotMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1000))

    def living_later(self: OwnedMachines, owner: str | None = None) -> list[OwnedMachine]:
        if next(looks) == 30:
            launch(sim, OURS, "late")
        return listed(self, owner)

    listed = OwnedMachines.living
    cancels = iter([["sir-1"]])
    monkeypatch.setattr(OwnedMachines, "living", living_later)
    monkeypatch.setattr(OwnedMachines, "cancel_open_requests", lambda self, owner: next(cancels, []))
    assert len(proteus_spot.tasks.panic.panic(OURS, None, lambda line: None).machines) == 1


def test_an_owner_file_of_another_account_is_not_overwritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    write_owner_file(url, Identity(OURS, ACCOUNT, "us-east-1"), None)
    for account, region in ((OTHER_ACCOUNT, "us-east-1"), (ACCOUNT, "eu-west-1")):
        with pytest.raises(InputError, match=r"db-ours\.json: names owner db-ours in account .* remove the file"):
            write_owner_file(url, Identity(OURS, account, region), None)
    write_owner_file(url, Identity(OURS), None)  # from before the first use of the market
    assert [each.account for each in read_owner_files(tmp_path / "owners")] == [ACCOUNT]
    write_owner_file(url, Identity(THEIRS), None)
    assert "owner db-ours is recorded for this database, too" in caplog.text


def test_credentials_of_another_account_are_refused(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    write_owner_file(url, Identity(OURS, OTHER_ACCOUNT, "us-east-1"), endpoint.url)
    monkeypatch.setenv("PROTEUS_DATABASE_URL", url)
    forget_runtime()
    for arguments in ((), ("--owner", OURS)):
        done = call(*arguments)
        assert isinstance(done.exception, InputError)
        assert f"its machines are in account {OTHER_ACCOUNT}" in str(done.exception)


def test_the_machines_of_a_local_run_that_is_under_way_end(
    endpoint: Endpoint, sim: SimSpotMarket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    monkeypatch.delenv("PROTEUS_EC2_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the user")
    forget_runtime()
    with own_directory(run):
        assert "its market has not started" in str(call("--dir", str(run)).exception)
        endpoint_file(run).write_text(json.dumps({"url": endpoint.url, "access_key_id": KEY}))
        write_owner_file(f"sqlite:///{run}/state.db", Identity(OURS, ACCOUNT, "us-east-1"), endpoint.url)
        launch(sim, OURS, "a", 2)
        others = launch(sim, THEIRS, "a")
        done = call("--dir", str(run))
    assert done.exception is None, done.output
    assert living(sim) == set(others)


def test_a_market_that_throttles_is_asked_again_and_one_that_does_not_answer_is_an_error(
    endpoint: Endpoint, sim: SimSpotMarket
) -> None:
    launch(sim, OURS, "a")
    sim.add_fault(Fault(FaultKind.THROTTLE, times=2))
    assert len(proteus_spot.tasks.panic.panic(OURS, None, lambda line: None).machines) == 1
    with pytest.raises(ProteusError, match="does not answer as it should"):
        OwnedMachines("us-east-1", "http://127.0.0.1:1").living(OURS)


def test_a_run_that_is_not_under_way_has_no_machines(tmp_path: Path) -> None:
    done = call("--dir", str(tmp_path))
    assert isinstance(done.exception, InputError)
    assert "no run is under way there" in str(done.exception)


def test_open_spot_requests_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials(monkeypatch)
    machines = OwnedMachines("us-east-1", None)
    wanted: dict[str, Any] = {
        "Filters": [{"Name": "tag:proteus:owner", "Values": ["db-\\*"]}, {"Name": "state", "Values": ["open"]}]
    }
    with Stubber(machines._ec2) as stub:
        rows = {"SpotInstanceRequests": [{"SpotInstanceRequestId": "sir-1"}]}
        stub.add_response("describe_spot_instance_requests", rows, wanted)
        stub.add_response("cancel_spot_instance_requests", {}, {"SpotInstanceRequestIds": ["sir-1"]})
        assert machines.cancel_open_requests("db-*") == ["sir-1"]
        stub.assert_no_pending_responses()


def test_a_machine_that_ec2_protects_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials(monkeypatch)
    machines = OwnedMachines("us-east-1", None)
    with Stubber(machines._ec2) as stub:
        stub.add_client_error("terminate_instances", "OperationNotPermitted", "protected")
        stub.add_client_error("terminate_instances", "OperationNotPermitted", "protected")
        stub.add_response("terminate_instances", {}, {"InstanceIds": ["i-2"]})
        stub.add_client_error("terminate_instances", "InvalidInstanceID.NotFound", "i-3")
        assert list(machines.terminate(["i-1", "i-2", "i-3"])) == ["i-1"]


def test_a_sweep_whose_machines_panic_has_ended_goes_on_or_is_closed_as_the_book_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(monkeypatch)
    monkeypatch.setattr(proteus_spot.tasks.panic, "_LOOK_S", 0.01)
    world = SweepWorld(tmp_path, monkeypatch)
    world.begin_sweep(sweep_spec(max_trial_steps=60))
    for _ in range(2):  # one trial trains before the others begin
        world.tick_job("sweep")
        world.advance(600)
    with served(world.market, world.clock, tmp_path / "machines") as endpoint:
        monkeypatch.setenv("PROTEUS_EC2_ENDPOINT_URL", endpoint.url)
        forget_runtime()
        done = call("--owner", world.runtime.owner)
    forget_runtime()
    assert done.exception is None, done.output
    assert done.output.count("job sweep") == 4
    assert not [fact for fact in world.sweep_facts() if fact.alive]
    request_stop("sweep", "panic")
    figures = world.to_the_end()
    assert (figures["state"], figures["why"], len(world.sweep_facts())) == ("stopped", "stop", 4), (
        "none was bought again"
    )
    assert {trial["state"] for trial in figures["trials"]} == {"paused"}
    assert world.store.purchases.spent("sweep") == sum(bill_of(world.market, by_second, by_second).values()) > 0
    world.close()
