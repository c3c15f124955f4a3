"""`proteus doctor` on the account: every check is seen good and seen wrong against an endpoint."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.doctor import account, machine
from proteus_spot.tasks.doctor.setup import Setup, Wrong

SPOT, ON_DEMAND, GPU_SPOT = "L-34B43A08", "L-1216C47A", "L-3819A6DF"


def job(kind: str = "c4.large", vcpus: int = 8, reliable: int = 1) -> JobSpec:
    return JobSpec.model_validate(
        {
            "job_id": "job",
            "training": {"clocks": 3},
            "transient": {"markets": [f"{kind}/us-east-1a"], "max_vcpus": vcpus},
            "reliable": {"count": reliable, "instance_type": "c4.large", "zone": "us-east-1a"},
        }
    )


def wrong(check: Callable[[Setup], str], setup: Setup) -> tuple[str, str]:
    with pytest.raises(Wrong) as found:
        check(setup)
    return str(found.value), found.value.fix


def test_credentials(endpoint, monkeypatch) -> None:
    setup, _ = endpoint()
    assert f"account {ACCOUNT}" in account.check_credentials(setup)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strange")
    what, fix = wrong(account.check_credentials, Setup(setup.settings))
    assert what.startswith("AuthFailure")
    assert "aws configure" in fix


def test_permissions(endpoint) -> None:
    setup, sim = endpoint(job())
    assert account.check_permissions(setup).startswith("2 purchases")
    sim.add_fault(Fault(FaultKind.DENIED, operation="terminate", code="UnauthorizedOperation"))
    what, fix = wrong(account.check_permissions, setup)
    assert what == "the credentials lack ec2:TerminateInstances, ec2:CancelSpotInstanceRequests"
    assert "policy" in fix


def test_permission_to_buy(endpoint) -> None:
    setup, sim = endpoint(job())
    sim.add_fault(Fault(FaultKind.DENIED, operation="launch", code="UnauthorizedOperation"))
    assert wrong(account.check_permissions, setup)[0].startswith("c4.large/us-east-1a: UnauthorizedOperation")


def test_spot_role(endpoint) -> None:
    assert account.check_spot_role(endpoint()[0]) == "is there"
    assert "create-service-linked-role" in wrong(account.check_spot_role, endpoint(spot_role=False)[0])[1]


@pytest.mark.parametrize(
    ("check", "code", "spec"),
    [
        (account.check_spot_quota, SPOT, job(vcpus=8)),
        (account.check_on_demand_quota, ON_DEMAND, job(reliable=4)),
        (account.check_gpu_quota, GPU_SPOT, job("g4dn.xlarge", vcpus=8)),
    ],
)
def test_quotas(endpoint, check: Callable[[Setup], str], code: str, spec: JobSpec) -> None:
    assert "8 vCPUs, 8 needed" in check(endpoint(spec, quotas={code: 8})[0])
    what, fix = wrong(check, endpoint(spec, quotas={code: 7})[0])
    assert "7 vCPUs are allowed and 8 needed" in what
    assert code in fix


def test_gpus_count_apart(endpoint) -> None:
    setup, _ = endpoint(job("g4dn.xlarge", vcpus=8), quotas={SPOT: 0, ON_DEMAND: 2})
    assert account.check_spot_quota(setup) == "none needed"
    assert account.check_on_demand_quota(setup) == "2 vCPUs, 2 needed"


def test_clock(endpoint, monkeypatch) -> None:
    setup, _ = endpoint()
    assert machine.check_clock(setup).endswith("s of AWS")
    caller = setup.account.caller()
    monkeypatch.setattr(
        type(setup.account), "caller", lambda _: type(caller)(caller.account, caller.arn, caller.at_s + 300)
    )
    what, fix = wrong(machine.check_clock, setup)
    assert "s behind AWS" in what
    assert "NTP" in fix


class Network:
    """A VPC of moto's with a subnet and a group."""

    def __init__(self, url: str) -> None:
        self.url, self.ec2 = url, boto3.client("ec2", "us-east-1", endpoint_url=url)
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        made = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.0.1.0/24", AvailabilityZone="us-east-1a")
        self.subnet = made["Subnet"]["SubnetId"]
        self.group = self.ec2.create_security_group(GroupName="g", Description="g", VpcId=self.vpc)["GroupId"]

    def open(self, **source: Any) -> None:
        rule = {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, **source}
        self.ec2.authorize_security_group_ingress(GroupId=self.group, IpPermissions=[rule])

    def setup(self, **settings: Any) -> Setup:
        return Setup(Settings(ec2_endpoint_url=self.url, **settings), job())


def test_subnets(moto: str) -> None:
    network = Network(moto)
    assert "1 in vpc-" in account.check_subnets(network.setup(subnet_ids={"us-east-1a": network.subnet}))
    assert "default" in account.check_subnets(network.setup())
    for subnets, what in (
        ({"us-east-1a": "subnet-00000000"}, "subnet-00000000 (zone us-east-1a) does not exist"),
        ({"us-east-1b": network.subnet}, "lies in us-east-1a, not in us-east-1b"),
    ):
        said, fix = wrong(account.check_subnets, network.setup(subnet_ids=subnets))
        assert what in said
        assert "PROTEUS_SUBNET_IDS" in fix


def test_security_groups(moto: str) -> None:
    network = Network(moto)
    setup = network.setup(security_group_ids=[network.group], subnet_ids={"us-east-1a": network.subnet})
    assert "do not reach each other" in wrong(account.check_security_groups, setup)[0]
    network.open(UserIdGroupPairs=[{"GroupId": network.group}])
    assert "members reach each other" in account.check_security_groups(setup)
    network.open(IpRanges=[{"CidrIp": "0.0.0.0/0"}])
    assert "any machine" in wrong(account.check_security_groups, setup)[0]
    gone = network.setup(security_group_ids=["sg-00000000"])
    assert "sg-00000000 does not exist" in wrong(account.check_security_groups, gone)[0]


def test_image(moto: str) -> None:
    network = Network(moto)
    known = network.ec2.describe_images()["Images"][0]["ImageId"]
    assert "is available" in account.check_image(network.setup(image_id=known))
    what, fix = wrong(account.check_image, network.setup(image_id="ami-12345678"))
    assert what == "ami-12345678 does not exist in us-east-1"
    assert "PROTEUS_IMAGE_ID" in fix
