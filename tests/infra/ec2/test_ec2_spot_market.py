"""boto3's market beyond the contract: settings on the wire, lost answers, no server, peculiarities of EC2."""

import socket
from contextlib import nullcontext
from datetime import UTC, datetime

import numpy as np
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import ANY, Stubber

from proteus_spot.bidding.market.model import EndCause, InstanceState, Market
from proteus_spot.bidding.market.spot_market import (
    AccessRefused,
    BadRequest,
    LaunchRefused,
    MarketUnreachable,
    TokenMismatch,
)
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.ec2.owned_machines import OwnedMachines
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.market_servers import (
    T0,
    TRACES,
    A,
    ManualClock,
    client,
    credentials,
    ec2_client,
    request,
    served,
    sold,
)


@pytest.fixture
def stub(monkeypatch):
    """A boto3 client whose answers are scripted."""
    credentials(monkeypatch)
    with Stubber(ec2_client()) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def instance(instance_id="i-00000000000000001", state="running", **more):
    return {
        "InstanceId": instance_id,
        "InstanceType": "c4.large",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": state},
        "LaunchTime": datetime.fromtimestamp(T0, UTC),
        "ClientToken": "t",
        **more,
    }


IMAGE = {"Images": [{"ImageId": "ami-7", "RootDeviceName": "/dev/sda1"}]}


def market_of(stub, settings=None):
    """The market on scripted answers, which has looked up the image's root device."""
    market = Ec2SpotMarket(settings or Settings(), client=stub.client)
    stub.add_response("describe_images", IMAGE)
    market._root_device()
    return market


def described(*instances):
    return {"Reservations": [{"Instances": list(instances)}]}


def test_settings_and_request_on_the_wire(stub):
    settings = Settings(
        image_id="ami-7",
        subnet_ids={"us-east-1a": "subnet-a"},
        security_group_ids=["sg-1"],
        instance_profile="node",
        root_volume_gb=30,
    )
    market = market_of(stub, settings)
    stub.add_response(
        "run_instances",
        {"Instances": [instance(SpotInstanceRequestId="sir-1")]},
        {
            "ImageId": "ami-7",
            "InstanceType": "c4.large",
            "MinCount": 2,
            "MaxCount": 2,
            "ClientToken": "t",
            "Placement": {"AvailabilityZone": "us-east-1a"},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "UserData": ANY,
            "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required"},
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/sda1",
                    "Ebs": {"Encrypted": True, "DeleteOnTermination": True, "VolumeType": "gp3", "VolumeSize": 30},
                }
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": [{"Key": "job", "Value": "j"}]}
                for kind in ("instance", "volume", "network-interface", "spot-instances-request")
            ],
            "SubnetId": "subnet-a",
            "SecurityGroupIds": ["sg-1"],
            "IamInstanceProfile": {"Name": "node"},
            "InstanceMarketOptions": {
                "MarketType": "spot",
                "SpotOptions": {
                    "MaxPrice": "1.000001",
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            },
        },
    )
    (fact,) = market.launch(request("t", count=2, bid="1.000001", user_data="#!/bin/sh\n", tags={"job": "j"}))
    assert fact.bid_micros == 1_000_001


@pytest.mark.parametrize(
    ("state", "reason", "ended_at_s"),
    [
        ("terminated", "User initiated (2016-03-01 00:01:40 GMT)", T0 + 100),
        ("shutting-down", "User initiated (2016-03-01 00:01:40 GMT)", T0 + 100),
    ],
)
def test_the_end_of_an_on_demand_instance(stub, state, reason, ended_at_s):
    stub.add_response("describe_instances", described(instance(state=state, StateTransitionReason=reason)))
    (fact,) = Ec2SpotMarket(Settings(), client=stub.client).describe()
    assert (fact.ended_at_s, fact.end_cause) == (ended_at_s, EndCause.USER)
    assert not fact.alive
    assert fact.state in (InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN)


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_a_stopped_instance_has_not_ended(stub, state):
    stub.add_response("describe_instances", described(instance(state=state)))
    (fact,) = Ec2SpotMarket(Settings(), client=stub.client).describe()
    assert (fact.state, fact.alive, fact.ended_at_s, fact.end_cause) == (InstanceState.STOPPED, False, None, None)


def test_a_spot_instance_is_never_taken_for_an_on_demand_one(stub):
    stub.add_response("describe_instances", described(instance(SpotInstanceRequestId="sir-1")))
    stub.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": []})
    (fact,) = Ec2SpotMarket(Settings(), client=stub.client).describe()
    assert (fact.complete, fact.bid_micros, fact.alive) == (False, None, True)


def test_a_young_machine_hides_no_other(stub):
    old, young = (instance(f"i-0000000000000000{n}", SpotInstanceRequestId=f"sir-{n}") for n in (1, 2))
    status = {"Code": "fulfilled", "UpdateTime": datetime.fromtimestamp(T0, UTC)}
    stub.add_response("describe_instances", described(old, young, instance("i-00000000000000003")))
    stub.add_response(
        "describe_spot_instance_requests",
        {"SpotInstanceRequests": [{"InstanceId": old["InstanceId"], "SpotPrice": "0.03", "Status": status}]},
        {"Filters": [{"Name": "spot-instance-request-id", "Values": ["sir-1", "sir-2"]}], "MaxResults": 1000},
    )
    facts = Ec2SpotMarket(Settings(), client=stub.client).describe()
    assert [(fact.complete, fact.bid_micros) for fact in facts] == [(True, 30_000), (False, None), (True, None)]


def test_an_image_that_is_not_there_is_named_before_anything_is_bought(stub):
    stub.add_response("describe_images", {"Images": []})
    with pytest.raises(BadRequest, match=r"EC2 describes no image ami-00000000 \(PROTEUS_IMAGE_ID\)"):
        Ec2SpotMarket(Settings(), client=stub.client).launch(request("t"))


@pytest.mark.parametrize(("code", "error"), [("DryRunOperation", None), ("UnauthorizedOperation", AccessRefused)])
def test_a_dry_run_is_right_when_it_would_have_succeeded(stub, code, error):
    market = market_of(stub)
    stub.add_client_error("run_instances", code, "told", 412)
    with nullcontext() if error is None else pytest.raises(error):
        market.dry_run(request("t", bid=None))


@pytest.mark.parametrize(("code", "error"), [("DryRunOperation", None), ("UnauthorizedOperation", AccessRefused)])
def test_the_dry_run_of_a_spot_machine_asks_for_what_tells_its_bid_and_notice(stub, code, error):
    market = market_of(stub)
    stub.add_client_error("run_instances", "DryRunOperation", "told", 412)
    stub.add_client_error("describe_spot_instance_requests", code, "told", 412, expected_params={"DryRun": True})
    with nullcontext() if error is None else pytest.raises(error):
        market.dry_run(request("t"))


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("VcpuLimitExceeded", 400, LaunchRefused),
        ("MaxSpotInstanceCountExceeded", 400, LaunchRefused),
        ("UnauthorizedOperation", 403, AccessRefused),
        ("RequestExpired", 400, AccessRefused),
        ("ExpiredToken", 400, AccessRefused),
        ("SomethingNew", 403, AccessRefused),
        ("IdempotentInstanceTerminated", 400, TokenMismatch),
        ("IdempotentParameterMismatch", 400, TokenMismatch),
        ("Client.RequestLimitExceeded", 503, MarketUnreachable),
        ("InvalidSpotInstanceRequestID.NotFound", 400, MarketUnreachable),
        ("UnfulfillableCapacity", 400, LaunchRefused),
        ("VolumeLimitExceeded", 400, LaunchRefused),
        ("SomethingNew", 400, BadRequest),
        ("InvalidAMIID.NotFound", 400, BadRequest),
        ("RequestLimitExceeded", 503, MarketUnreachable),
        ("RequestLimitExceeded", 400, MarketUnreachable),
        ("Throttling", 400, MarketUnreachable),
        ("InternalError", 500, MarketUnreachable),
        ("SomethingNew", 503, MarketUnreachable),
    ],
)
def test_codes(stub, code, status, error):
    market = market_of(stub)
    stub.add_client_error("run_instances", code, "told", status)
    with pytest.raises(error) as raised:
        market.launch(request("t"))
    assert (raised.value.code, raised.value.message) == (code, "told")


@pytest.mark.parametrize(
    "code", ["RequestLimitExceeded", "UnauthorizedOperation", "InternalError", "VcpuLimitExceeded"]
)
def test_what_goes_wrong_after_a_purchase_is_no_refusal(stub, code):
    market = market_of(stub)
    stub.add_response("run_instances", {"Instances": [instance(state="terminated", SpotInstanceRequestId="sir-1")]})
    stub.add_client_error("describe_spot_instance_requests", code, "told", 400)
    with pytest.raises(MarketUnreachable) as raised:
        market.launch(request("t"))
    assert (raised.value.code, raised.value.message) == (code, "told")


def test_an_answer_that_is_lost_after_a_purchase_is_no_refusal(stub, monkeypatch):
    market = market_of(stub)
    stub.add_response("run_instances", {"Instances": [instance(state="terminated", SpotInstanceRequestId="sir-1")]})

    def lost(**params):
        raise EndpointConnectionError(endpoint_url="https://ec2")

    monkeypatch.setattr(stub.client, "describe_spot_instance_requests", lost)
    with pytest.raises(MarketUnreachable, match="EndpointConnectionError"):
        market.launch(request("t"))


def test_no_server(monkeypatch):
    credentials(monkeypatch)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        clock = SystemClock()
        began_s = clock.now_s()
        with pytest.raises(MarketUnreachable) as unreachable:
            client(f"http://127.0.0.1:{closed.getsockname()[1]}", attempts=2).describe()
        assert clock.now_s() - began_s < 10
    assert "Could not connect" in unreachable.value.message


def test_a_server_that_never_answers(monkeypatch):
    credentials(monkeypatch)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(MarketUnreachable):
            client(f"http://127.0.0.1:{silent.getsockname()[1]}", attempts=1, read_s=0.2).describe()


def test_no_credentials_is_no_trouble_of_the_market(monkeypatch):
    credentials(monkeypatch)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessRefused) as wrong:
        client("http://127.0.0.1:9").describe()
    assert wrong.value.code == "NoCredentialsError"


@pytest.fixture
def sim_and_market(tmp_path, monkeypatch):
    credentials(monkeypatch)
    clock = ManualClock(T0 + 10)
    sim = SimSpotMarket(TRACES, sold, clock.now_s)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        yield sim, client(endpoint.url, attempts=3)


def test_an_answer_that_is_lost_buys_once(sim_and_market):
    sim, market = sim_and_market
    sim.add_fault(Fault(FaultKind.LOSE_ANSWER, operation="launch", times=1))
    facts = market.launch(request("t", count=2))
    assert [fact.instance_id for fact in facts] == [fact.instance_id for fact in sim.log()]
    assert len(facts) == 2


def test_a_purchase_whose_answer_never_comes_is_found_by_its_token(sim_and_market):
    sim, market = sim_and_market
    sim.add_fault(Fault(FaultKind.LOSE_ANSWER, operation="launch", times=3))
    with pytest.raises(MarketUnreachable):
        market.launch(request("t", tags={"order": "1"}))
    (found,) = market.describe([("order", "1")])
    assert found.token == "t"
    assert market.launch(request("t", tags={"order": "1"})) == [found]
    assert len(sim.log()) == 1


def test_a_late_answer_is_waited_for(sim_and_market):
    sim, market = sim_and_market
    sim.add_fault(Fault(FaultKind.DELAY, operation="launch", times=1, delay_s=0.2))
    clock = SystemClock()
    began_s = clock.now_s()
    assert len(market.launch(request("t"))) == 1
    assert clock.now_s() - began_s >= 0.2


def test_passing_trouble_is_retried(sim_and_market):
    sim, market = sim_and_market
    sim.add_fault(Fault(FaultKind.THROTTLE, times=1))
    sim.add_fault(Fault(FaultKind.UNAVAILABLE, times=1))
    assert len(market.launch(request("t"))) == 1


def test_user_data_arrives_as_it_was(sim_and_market):
    sim, market = sim_and_market
    script = "#!/bin/sh\n# žluťoučký kůň & <tag> ]]>\nexec sleep 1000\n"
    (fact,) = market.launch(request("t", user_data=script, tags={"<&>": 'a "b" c'}))
    assert sim.request_of(fact.instance_id).user_data == script
    assert market.describe([("<&>", 'a "b" c')]) == [fact]


def test_a_long_history_comes_whole(tmp_path, monkeypatch):
    credentials(monkeypatch)
    other = Market("c4.xlarge", "us-east-1b")
    times, prices = T0 + np.arange(1500) * 10, 20_000 + np.arange(1500)
    traces = TraceSet({A: Trace(times, prices), other: Trace(times, prices)})
    clock = ManualClock(T0 + 20_000)
    sim = SimSpotMarket(traces, sold, clock.now_s)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        market = client(endpoint.url)
        for wanted in ([A], [A, other]):
            assert market.price_history(wanted, T0 + 5, T0 + 20_000) == sim.price_history(wanted, T0 + 5, T0 + 20_000)


def test_a_profile_of_another_project_counts_at_aws_and_not_in_a_market_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(InputError, match=r"^AWS_PROFILE=no-such-profile.*could not be found"):
        Ec2SpotMarket(Settings()).describe([])
    with pytest.raises(InputError, match=r"^AWS_PROFILE=no-such-profile.*could not be found"):
        OwnedMachines("us-east-1", None)
    local = Settings(ec2_endpoint_url="http://127.0.0.1:9", ec2_key_id="proteus1")  # type: ignore[arg-type]
    with pytest.raises(MarketUnreachable):
        Ec2SpotMarket(local, attempts=1, connect_s=1.0).describe([])


def test_an_experiment_that_takes_a_machine_gives_notice(stub):
    status = {"Code": "marked-for-termination-by-experiment", "UpdateTime": datetime.fromtimestamp(T0 + 60, UTC)}
    row = {"SpotInstanceRequestId": "sir-1", "InstanceId": "i-1", "SpotPrice": "0.03", "Status": status}
    market = market_of(stub)
    stub.add_response("describe_instances", described(instance("i-1", SpotInstanceRequestId="sir-1")))
    stub.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": [row]})
    (fact,) = market.describe()
    assert fact.notice_at_s == T0 + 60 + Settings().notice_s


def test_an_empty_page_of_prices_does_not_end_them(stub):
    price = {"Timestamp": datetime.fromtimestamp(T0 + 60, UTC), "SpotPrice": "0.03"}
    market = market_of(stub)
    stub.add_response("describe_spot_price_history", {"SpotPriceHistory": [], "NextToken": "more"})
    stub.add_response("describe_spot_price_history", {"SpotPriceHistory": [price]})
    assert market.newest_price_s(T0, T0 + 100) == T0 + 60
