"""The machines of this project in an account, by the owner in their tags, with the plainest calls of EC2.

To end machines when nothing else works: it needs credentials and a region, no database and no settings of
a job, and it touches nothing that does not carry the tag of the owner it was given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConfigParseError, ProfileNotFound

from proteus_spot.bidding.market.model import JOB_TAG, OWNER_TAG
from proteus_spot.infra.ec2.aws_configuration import aws_configuration
from proteus_spot.infra.errors import InputError, ProteusError

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

T = TypeVar("T")

#: A stopped instance is not paid for by the hour, but its disk is, and it can be started.
_LIVING = ("pending", "running", "stopping", "stopped")
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 8},
    connect_timeout=5,
    read_timeout=20,
    user_agent_extra="proteus-panic",
)
#: Number of machines ended by one call.
_AT_ONCE = 50


@dataclass(frozen=True, slots=True, order=True)
class OwnedMachine:
    """A machine with an owner's tag that has not ended."""

    owner: str
    job: str
    instance_id: str
    instance_type: str
    zone: str
    state: str


class OwnedMachines:
    """The machines of one account and region that carry an owner's tag.

    Parameters
    ----------
    region, endpoint_url : the region, and the EC2 API to talk to (None: AWS itself).
    credentials : access key id and secret; None takes boto3's.

    Raises
    ------
    ProteusError
        From every other method, if EC2 refuses or does not answer after the retries: one line.
    """

    def __init__(self, region: str, endpoint_url: str | None, credentials: tuple[str, str] | None = None) -> None:
        self._region = region
        key_id, secret = credentials or (None, None)
        self._open: Callable[[str], Any] = lambda service: boto3.session.Session(
            aws_access_key_id=key_id, aws_secret_access_key=secret
        ).client(service, region_name=region, endpoint_url=endpoint_url, config=_CONFIG)  # type: ignore[call-overload]
        self._ec2: EC2Client = self._ask(lambda: self._open("ec2"))

    def account_id(self) -> str:
        """Return the account that the credentials belong to."""
        return str(self._ask(lambda: self._open("sts").get_caller_identity())["Account"])

    def living(self, owner: str | None = None) -> list[OwnedMachine]:
        """Return the machines that have not ended: of `owner`, or of every owner."""
        wanted = {"Name": "tag-key", "Values": [OWNER_TAG]}
        if owner is not None:
            wanted = {"Name": f"tag:{OWNER_TAG}", "Values": [_literal(owner)]}
        states = {"Name": "instance-state-name", "Values": list(_LIVING)}
        pages = self._ec2.get_paginator("describe_instances").paginate(Filters=[wanted, states])  # type: ignore[list-item]
        found = []
        reservations = self._ask(lambda: [reservation for page in pages for reservation in page["Reservations"]])
        for row in (row for reservation in reservations for row in reservation["Instances"]):
            tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
            if OWNER_TAG in tags and owner in (None, tags[OWNER_TAG]):  # whatever the filter was taken for
                found.append(
                    OwnedMachine(
                        owner=tags[OWNER_TAG],
                        job=tags.get(JOB_TAG, ""),
                        instance_id=row["InstanceId"],
                        instance_type=row["InstanceType"],
                        zone=row["Placement"]["AvailabilityZone"],
                        state=row["State"]["Name"],
                    )
                )
        return sorted(found)

    def terminate(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """Terminate machines; return why EC2 does not end one, by its id. One that it forgot has ended."""
        refused: dict[str, str] = {}
        for start in range(0, len(instance_ids), _AT_ONCE):
            ids = list(instance_ids[start : start + _AT_ONCE])
            try:
                self._ec2.terminate_instances(InstanceIds=ids)
            except ClientError as error:
                if len(ids) > 1:  # one of them is refused, and then EC2 ends none
                    for instance_id in ids:
                        refused |= self.terminate([instance_id])
                elif not _code(error).startswith("InvalidInstanceID"):
                    refused[ids[0]] = str(error)
            except BotoCoreError as error:
                refused |= dict.fromkeys(ids, str(error))
        return refused

    def cancel_open_requests(self, owner: str) -> list[str]:
        """Cancel the owner's spot requests that may still buy; return their ids."""
        filters: Any = [
            {"Name": f"tag:{OWNER_TAG}", "Values": [_literal(owner)]},
            {"Name": "state", "Values": ["open"]},
        ]
        pages = self._ec2.get_paginator("describe_spot_instance_requests").paginate(Filters=filters)
        rows = self._ask(lambda: [row for page in pages for row in page["SpotInstanceRequests"]])
        ids = [row["SpotInstanceRequestId"] for row in rows]
        if ids:
            self._ask(lambda: self._ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=ids))
        return ids

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (ProfileNotFound, ConfigParseError) as error:
            raise InputError(f"{aws_configuration()}: {error}; correct it") from None
        except (ClientError, BotoCoreError, ValueError) as error:
            raise ProteusError(f"EC2 in {self._region} does not answer as it should: {error}") from None


def _literal(value: str) -> str:
    """Return the filter that matches exactly `value`."""
    return "".join(f"\\{character}" if character in "*?\\" else character for character in value)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
