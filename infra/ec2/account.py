"""What an account is, has and may do, asked without changing anything."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from proteus_spot.bidding.market.quotas import Quota
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.errors import ProteusError

T = TypeVar("T")

#: The role that EC2 needs in the account to sell spot machines.
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
#: Actions other than a purchase that the worker carries out: the call of boto3, and parameters that name nothing.
_ACTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "ec2:DescribeInstances": ("describe_instances", {}),
        "ec2:DescribeSpotPriceHistory": ("describe_spot_price_history", {}),
        "ec2:DescribeSpotInstanceRequests": ("describe_spot_instance_requests", {}),
        "ec2:TerminateInstances": ("terminate_instances", {"InstanceIds": ["i-00000000000000000"]}),
        "ec2:CancelSpotInstanceRequests": (
            "cancel_spot_instance_requests",
            {"SpotInstanceRequestIds": ["sir-00000000"]},
        ),
    }
)
#: Codes that say that EC2 did not refuse the action itself.
_ALLOWED = ("DryRunOperation", "InvalidInstanceID", "InvalidSpotInstanceRequestID")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose credentials these are, and the time in seconds since the Unix epoch by the clock of the service."""

    account: str
    arn: str
    at_s: float | None


class _Refused(ProteusError):
    """An answer of AWS that is an error, with its code."""

    def __init__(self, error: ClientError) -> None:
        found = error.response.get("Error", {})
        self.code = str(found.get("Code", "Unknown"))
        super().__init__(f"{self.code}: {found.get('Message', '')}")


class Account:
    """The account that the credentials of a market belong to.

    Raises
    ------
    ProteusError
        From every method: one line, if AWS refuses or does not answer.
    """

    def __init__(self, market: Ec2SpotMarket) -> None:
        self._market = market

    def caller(self) -> Caller:
        """Return whose credentials these are."""
        answer = self._ask(lambda: self._market.connect("sts").get_caller_identity())
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        at_s = parsedate_to_datetime(date).timestamp() if date else None
        return Caller(str(answer["Account"]), str(answer["Arn"]), at_s)

    def missing_actions(self) -> list[str]:
        """Return the actions that the credentials may not carry out; each is tried by a dry run."""
        return [name for name, (call, parameters) in _ACTIONS.items() if not self._may(call, parameters)]

    def _may(self, call: str, parameters: Mapping[str, Any]) -> bool:
        try:
            self._ask(lambda: getattr(self._ec2(), call)(**parameters, DryRun=True))
        except _Refused as error:
            if error.code in ("UnauthorizedOperation", "AccessDenied"):
                return False
            if not error.code.startswith(_ALLOWED):
                raise
        return True

    def quota(self, quota: Quota) -> int:
        """Return the vCPUs that a quota allows."""
        client = self._ask(lambda: self._market.connect("service-quotas"))
        named = {"ServiceCode": "ec2", "QuotaCode": quota.code}
        try:
            answer = self._ask(lambda: client.get_service_quota(**named))
        except _Refused as error:
            if error.code != "NoSuchResourceException":
                raise
            # An account that never changed a quota has the default.
            answer = self._ask(lambda: client.get_aws_default_service_quota(**named))
        return int(answer["Quota"]["Value"])

    def has_spot_role(self) -> bool:
        """Return whether the account has the service-linked role of EC2 spot."""
        try:
            self._ask(lambda: self._market.connect("iam").get_role(RoleName=SPOT_ROLE))
        except _Refused as error:
            if error.code == "NoSuchEntity":
                return False
            raise
        return True

    def zones(self) -> list[str]:
        """Return the zones of the region that can be used."""
        rows = self._ask(lambda: self._ec2().describe_availability_zones())["AvailabilityZones"]
        return sorted(row["ZoneName"] for row in rows if row["State"] == "available")

    def image(self, image_id: str) -> Mapping[str, Any] | None:
        """Return an image as EC2 describes it; None if there is none."""
        try:
            return next(iter(self._ask(lambda: self._ec2().describe_images(ImageIds=[image_id]))["Images"]), None)
        except _Refused as error:
            if error.code.startswith("InvalidAMIID"):
                return None
            raise

    def subnets(self, ids: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """Return the subnets that exist among `ids`, by id."""
        filters = [{"Name": "subnet-id", "Values": sorted(ids)}]
        rows = self._ask(lambda: self._ec2().describe_subnets(Filters=filters))["Subnets"]
        return {row["SubnetId"]: row for row in rows}

    def security_groups(self, ids: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """Return the security groups that exist among `ids`, by id."""
        filters = [{"Name": "group-id", "Values": sorted(ids)}]
        rows = self._ask(lambda: self._ec2().describe_security_groups(Filters=filters))["SecurityGroups"]
        return {row["GroupId"]: row for row in rows}

    def _ec2(self) -> Any:
        return self._market.connect("ec2")

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except ClientError as error:
            raise _Refused(error) from None
        except (BotoCoreError, MarketError) as error:
            raise ProteusError(str(error)) from None
