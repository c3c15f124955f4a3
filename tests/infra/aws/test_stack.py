"""The CloudFormation template: made against moto, and a job's calls under its roles; conditions are read.

moto checks actions and resource ARNs of a role's policies, and no conditions.
"""

import configparser
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.core.authorization import enable_iam_authentication
from moto.iam.models import iam_backends

from proteus_spot.infra.ec2.event_messages import REBALANCE, RESERVATION_WARNINGS, SPOT_WARNING
from proteus_spot.infra.ec2.sqs_events import SqsEvents
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.event_queue import event_message

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "infra" / "aws"
TEMPLATE = FOLDER / "stack.yaml"
_IDS = {"LogicalResourceId", "PhysicalResourceId"}
#: EC2 says the second, and moto the first, or of SQS the third.
REFUSED = ("AccessDenied", "UnauthorizedOperation", "403")
#: Messages that were received and not removed.
LEFT = "ApproximateNumberOfMessagesNotVisible"
BUCKET, REGION = "proteus-test-bucket", "us-east-1"


class Stack:
    """The stack in moto's account."""

    def __init__(self) -> None:
        ec2 = boto3.client("ec2", REGION)
        self.vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnet = ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
        table = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])["RouteTables"][0]
        self.image = ec2.describe_images()["Images"][0]["ImageId"]
        parameters = {
            "VpcId": self.vpc,
            "HeadSubnetId": self.subnet,
            "RouteTableIds": table["RouteTableId"],
            "HeadImageId": self.image,
            "NodeImageId": self.image,
            "NodeSubnets": f'{{"us-east-1a":"{self.subnet}"}}',
            "BucketName": BUCKET,
        }
        cloud = boto3.client("cloudformation", REGION)
        cloud.create_stack(
            StackName="proteus",
            TemplateBody=TEMPLATE.read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
        (stack,) = cloud.describe_stacks(StackName="proteus")["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        self.outputs = {row["OutputKey"]: row["OutputValue"] for row in stack["Outputs"]}
        rows = cloud.describe_stack_resources(StackName="proteus")["StackResources"]
        # What moto does not make has no ids.
        self.ids = {row["LogicalResourceId"]: row["PhysicalResourceId"] for row in rows if row.keys() >= _IDS}

    def session(self, role: str) -> boto3.session.Session:
        """Return a session with the rights of a role alone."""
        name, iam = self.ids[role], boto3.client("iam", REGION)
        backend = iam_backends[ACCOUNT_ID]["aws"]
        for policy in backend.list_role_policies(name):  # moto's stack leaves objects where it checks texts
            _, document = backend.get_role_policy(name, policy)
            iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))
        arn = iam.get_role(RoleName=name)["Role"]["Arn"]
        given = boto3.client("sts", REGION).assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
        return boto3.session.Session(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], REGION)


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield Stack()


def refusal(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return str(error.value.response["Error"]["Code"])


def test_a_node_reads_and_writes_blobs_of_jobs_and_nothing_else(stack: Stack) -> None:
    session = stack.session("NodeRole")
    with enable_iam_authentication():
        s3, ec2 = session.client("s3"), session.client("ec2")
        s3.put_object(Bucket=BUCKET, Key="jobs/a/model/m.npz", Body=b"1")
        assert s3.get_object(Bucket=BUCKET, Key="jobs/a/model/m.npz")["Body"].read() == b"1"
        s3.delete_object(Bucket=BUCKET, Key="jobs/a/model/m.npz")
        assert refusal(s3.put_object, Bucket=BUCKET, Key="prices/x.parquet", Body=b"1") in REFUSED
        assert refusal(s3.get_object, Bucket=BUCKET, Key="predictors/x") in REFUSED
        assert refusal(ec2.run_instances, ImageId=stack.image, MinCount=1, MaxCount=1) in REFUSED
        assert refusal(ec2.describe_instances) in REFUSED


def test_the_head_buys_machines_and_makes_no_network(stack: Stack) -> None:
    session = stack.session("HeadRole")
    with enable_iam_authentication():
        ec2, s3 = session.client("ec2"), session.client("s3")
        s3.put_object(Bucket=BUCKET, Key="prices/x.parquet", Body=b"1")
        ec2.describe_instances()
        ec2.describe_spot_instance_requests()
        assert refusal(ec2.create_vpc, CidrBlock="10.1.0.0/16") in REFUSED
        assert refusal(ec2.create_security_group, GroupName="g", Description="g") in REFUSED
        assert refusal(session.client("iam").create_user, UserName="u") in REFUSED


def test_the_rule_fills_the_queue_with_what_is_read_and_the_head_alone_takes_it(
    stack: Stack, template: dict[str, Any]
) -> None:
    (target,) = boto3.client("events", REGION).list_targets_by_rule(Rule=stack.ids["MachineEvents"])["Targets"]
    url, sqs = stack.ids["EventQueue"], boto3.client("sqs", REGION)
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["QueueArn"], found["MessageRetentionPeriod"]) == (target["Arn"], "600")
    pattern = template["Resources"]["MachineEvents"]["Properties"]["EventPattern"]
    assert pattern == {"source": ["aws.ec2"], "detail-type": [SPOT_WARNING, REBALANCE, *RESERVATION_WARNINGS]}
    (row,) = template["Resources"]["EventQueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (row["Principal"], row["Action"]) == ({"Service": "events.amazonaws.com"}, "sqs:SendMessage")
    assert row["Condition"] == {"ArnEquals": {"aws:SourceArn": ("GetAtt", "MachineEvents.Arn")}}
    sqs.send_message(QueueUrl=url, MessageBody=event_message(REBALANCE, "i-0123456789abcdef0", 1000))
    head, node = (stack.session(role).client("sqs") for role in ("HeadRole", "NodeRole"))
    with enable_iam_authentication():
        (event,) = SqsEvents(url, lambda: head, wait_s=0).receive()
        # moto wants an action of its own for a batch; SQS has none.
        head.delete_message(QueueUrl=url, ReceiptHandle=event.receipt)
        assert refusal(head.send_message, QueueUrl=url, MessageBody="{}") in REFUSED
        assert refusal(node.receive_message, QueueUrl=url) in REFUSED
    assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"][LEFT] == "0"


def test_nodes_reach_each_other_the_head_reaches_them_and_nobody_reaches_the_head(stack: Stack) -> None:
    ec2 = boto3.client("ec2", REGION)
    nodes, head = stack.outputs["NodeSecurityGroup"], stack.ids["HeadGroup"]
    (group,) = ec2.describe_security_groups(GroupIds=[nodes])["SecurityGroups"]
    sources = {pair["GroupId"] for rule in group["IpPermissions"] for pair in rule["UserIdGroupPairs"]}
    assert sources == {nodes, head}
    assert not any(rule["IpRanges"] for rule in group["IpPermissions"])
    (closed,) = ec2.describe_security_groups(GroupIds=[head])["SecurityGroups"]
    assert closed["IpPermissions"] == []
    (gateway,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert (gateway["ServiceName"], gateway["VpcEndpointType"]) == ("com.amazonaws.us-east-1.s3", "Gateway")


def test_blobs_expire_and_are_not_public(template: dict[str, Any]) -> None:
    bucket = template["Resources"]["Bucket"]["Properties"]
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert {rule["Id"] for rule in rules if rule["Status"] == "Enabled"} == {"jobs", "probes", "uploads"}
    blocked = bucket["PublicAccessBlockConfiguration"]
    assert len(blocked) == 4
    assert all(blocked.values())


# -- what moto does not check ----------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, each read as its name and what it is of."""


def _short_form(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> tuple[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        return name, loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return name, loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return name, loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _short_form)


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(TEMPLATE.read_text(), _Loader)
    return found


def statements(template: dict[str, Any], role: str) -> dict[str, dict[str, Any]]:
    policies = template["Resources"][role]["Properties"]["Policies"]
    rows = [row for policy in policies for row in policy["PolicyDocument"]["Statement"]]
    return {row["Sid"]: row for row in rows if "Sid" in row}


def test_conditions_bind_purchases_ends_and_lists_to_what_is_ours(template: dict[str, Any]) -> None:
    ours, node = statements(template, "HeadRole"), statements(template, "NodeRole")
    owner = ("Ref", "Owner")
    assert ours["BuyWithOurTag"]["Condition"] == {"StringEquals": {"aws:RequestTag/proteus:owner": owner}}
    assert ours["EndOurs"]["Condition"] == {"StringEquals": {"ec2:ResourceTag/proteus:owner": owner}}
    assert ours["TagWhatIsBought"]["Condition"] == {"StringEquals": {"ec2:CreateAction": "RunInstances"}}
    assert ours["GiveNodesTheirRole"]["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    assert node["ListJobs"]["Condition"] == {"StringLike": {"s3:prefix": ["jobs/*"]}}
    (only_tls,) = template["Resources"]["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (only_tls["Effect"], only_tls["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_no_statement_allows_every_action(template: dict[str, Any]) -> None:
    for role in ("HeadRole", "NodeRole"):
        for policy in template["Resources"][role]["Properties"]["Policies"]:
            for row in policy["PolicyDocument"]["Statement"]:
                actions = row["Action"] if isinstance(row["Action"], list) else [row["Action"]]
                assert not any("*" in action for action in actions), row


def test_cloudformation_reads_no_aliases() -> None:
    assert not re.search(r"^[^#\n]*:\s+[&*]\w+\s*$", TEMPLATE.read_text(), re.MULTILINE)


def test_the_settings_that_the_head_gets_are_settings(template: dict[str, Any]) -> None:
    data = template["Resources"]["HeadTemplate"]["Properties"]["LaunchTemplateData"]
    script = data["UserData"]["Fn::Base64"][1]
    named = {name.lower() for name in re.findall(r"^PROTEUS_(\w+)=", script, re.MULTILINE)}
    assert named <= set(Settings.model_fields)
    assert {"bucket", "image_id"} & named == {"image_id"}
    assert data["MetadataOptions"]["HttpTokens"] == "required"


@pytest.mark.skipif(find_spec("cfnlint") is None, reason="cfn-lint is not installed")
def test_cfn_lint_finds_nothing() -> None:
    command = [str(Path(sys.executable).with_name("cfn-lint")), str(TEMPLATE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("unit", sorted(FOLDER.glob("*.service")), ids=lambda unit: unit.stem)
def test_a_unit_starts_what_there_is(unit: Path) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    command = parser["Service"]["ExecStart"].split()
    assert command[0] in ("/opt/proteus/.venv/bin/prefect", "/opt/proteus/.venv/bin/proteus")
    assert parser["Service"]["User"] == "proteus"
    assert parser["Service"]["Restart"] == "always"
    started = re.findall(r"proteus-[a-z]+", TEMPLATE.read_text().partition("systemctl enable")[2].splitlines()[0])
    assert unit.stem in started
    before = parser["Service"].get("ExecStartPre")
    assert before is None or (ROOT / before.removeprefix("/opt/proteus/")).is_file()


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.sh")), ids=lambda script: script.stem)
def test_a_script_is_bash(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
