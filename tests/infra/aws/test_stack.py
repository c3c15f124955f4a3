"""The CloudFormation template and the files beside it: what they say."""

import configparser
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from proteus_spot.infra.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "infra" / "aws"
TEMPLATE = FOLDER / "stack.yaml"
BUCKET, REGION = "proteus-test-bucket", "us-east-1"


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
