"""Details of EC2's API, and the control routes of the endpoint."""

import json
from datetime import UTC, datetime

import httpx
import numpy as np

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from tests.support.endpoint_machines import CONTROL, code_of
from tests.support.market_servers import T0, TRACES, A, client, credentials, ec2_client, request, served, sold

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
    sim.capacity.traces = {A: capacity_trace([1, 0], 900, T0)}
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
