"""Who may call the endpoint: whoever holds its key; no web page, and no other user of the machine."""

import base64
import json

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER
from tests.support.market_servers import (
    KEY,
    OTHER_ACCOUNT,
    OTHER_KEY,
    T0,
    TRACES,
    EndpointProcess,
    ManualClock,
    client,
    credentials,
    request,
    served,
    sold,
    wait_for,
)

#: What a form of any web page, or another user of this machine, can send.
DRIVE_BY = {
    "Action": "RunInstances",
    "Version": "2016-11-15",
    "ImageId": "ami-1",
    "InstanceType": "c4.large",
    "MinCount": "1",
    "MaxCount": "1",
    "ClientToken": "evil",
}
SIGNATURE = f"AWS4-HMAC-SHA256 Credential={KEY}/20160301/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0"


@pytest.fixture
def sim():
    clock = ManualClock(T0 + 10)
    return SimSpotMarket(TRACES, sold, clock.now_s, behaviour=Ec2Behaviour(quotas={"L-34B43A08": 5}))


@pytest.fixture
def endpoint(sim, tmp_path, monkeypatch):
    credentials(monkeypatch)
    with served(sim, ManualClock(T0 + 10), tmp_path / "machines") as endpoint:
        yield endpoint


def test_the_user_data_of_a_form_that_a_web_page_posts_never_runs(endpoint, sim, tmp_path):
    mark = tmp_path / "OWNED"
    script = f"#!/bin/sh\nid -un > {mark}\nexec sleep 60\n"
    form = {**DRIVE_BY, "UserData": base64.b64encode(script.encode()).decode()}
    for headers in (
        {},
        {"Origin": "https://evil.example", "Host": "evil.example"},
        {"Origin": "null"},
        {"Authorization": SIGNATURE.replace(KEY, "local")},
        {"Authorization": SIGNATURE, "Origin": "https://evil.example"},
        {"Authorization": SIGNATURE, "Host": "evil.example"},  # a name of the page's that leads to this address
    ):
        assert httpx.post(endpoint.url, data=form, headers=headers).status_code in (401, 403)
    assert sim.log() == []
    (fact,) = client(endpoint.url).launch(request("mine", user_data=script))
    wait_for(mark.exists, "the user-data of a purchase that is signed")
    assert [one.instance_id for one in sim.log()] == [fact.instance_id]


def test_an_unsigned_request_and_a_wrong_key_have_ec2s_codes(endpoint):
    unsigned = httpx.post(endpoint.url, data=DRIVE_BY)
    assert (unsigned.status_code, "<Code>MissingAuthenticationToken<" in unsigned.text) == (403, True)
    wrong = httpx.post(endpoint.url, data=DRIVE_BY, headers={"Authorization": SIGNATURE.replace(KEY, "guess")})
    assert (wrong.status_code, "<Code>AuthFailure<" in wrong.text) == (401, True)


@pytest.mark.parametrize("path", ["/_market/log", "/_market/fault"])
def test_the_routes_of_the_market_want_the_key(endpoint, path):
    def call(**headers):
        fault = {"kind": "throttle", "times": 0}
        answer = (
            httpx.get if path.endswith("log") else lambda url, headers: httpx.post(url, json=fault, headers=headers)
        )
        return answer(f"{endpoint.url}{path}", headers=headers).status_code

    assert call() == 403
    assert call(**{KEY_HEADER: "guess"}) == 403
    assert call(**{KEY_HEADER: KEY, "Origin": "https://evil.example"}) == 403
    assert call(**{KEY_HEADER: KEY}) == 200


def test_the_metadata_service_serves_no_web_page(endpoint):
    (fact,) = client(endpoint.url).launch(request("t"))
    url = f"{endpoint.metadata_url}/{fact.instance_id}/latest/api/token"
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    assert httpx.put(url, headers=headers).status_code == 200
    assert httpx.put(url, headers={**headers, "Origin": "https://evil.example"}).status_code == 403
    assert httpx.put(url, headers={**headers, "Host": "evil.example"}).status_code == 403


def test_each_server_has_a_key_of_its_own_that_only_its_owner_can_read(tmp_path, monkeypatch):
    credentials(monkeypatch)
    keys = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        server = EndpointProcess(tmp_path / name, "system")
        try:
            announced = tmp_path / name / "endpoint.json"
            assert announced.stat().st_mode & 0o077 == 0
            keys.append(json.loads(announced.read_text())["access_key_id"])
            client(server.url).describe()
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
            with pytest.raises(Exception, match="AuthFailure"):
                client(server.url, attempts=1).describe()
        finally:
            server.close()
    assert len(set(keys)) == 2
    assert min(map(len, keys)) > 32


# The services beside EC2


def clients(url, name, key=KEY):
    return boto3.client(
        name, region_name="us-east-1", endpoint_url=url, aws_access_key_id=key, aws_secret_access_key="unchecked"
    )


def test_sts_says_whose_key_it_is(endpoint):
    caller = clients(endpoint.url, "sts").get_caller_identity()
    assert (caller["Account"], caller["Arn"]) == (ACCOUNT, f"arn:aws:iam::{ACCOUNT}:user/simulated")
    assert clients(endpoint.url, "sts", OTHER_KEY).get_caller_identity()["Account"] == OTHER_ACCOUNT
    with pytest.raises(ClientError, match="AuthFailure"):
        clients(endpoint.url, "sts", "guess").get_caller_identity()


def test_service_quotas_are_those_that_the_market_keeps(endpoint):
    quotas = clients(endpoint.url, "service-quotas")
    spot = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-34B43A08")["Quota"]
    assert (spot["Value"], spot["QuotaName"]) == (
        5.0,
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    )
    listed = {one["QuotaCode"]: one["Value"] for one in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]}
    assert listed["L-34B43A08"] == 5.0
    assert listed["L-1216C47A"] > 5.0
    with pytest.raises(quotas.exceptions.NoSuchResourceException):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


def test_iam_has_the_service_linked_role_of_spot_or_not(endpoint, sim):
    iam = clients(endpoint.url, "iam")
    role = iam.get_role(RoleName="AWSServiceRoleForEC2Spot")["Role"]
    assert role["Arn"].endswith(":role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot")
    for name in ("SomeRole", "AWSServiceRoleForEC2Spot"):
        with pytest.raises(iam.exceptions.NoSuchEntityException):
            iam.get_role(RoleName=name)
        sim.behaviour = Ec2Behaviour(spot_role=False)
