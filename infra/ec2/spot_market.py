"""`SpotMarket` on boto3, for EC2 and every EC2-compatible endpoint.

*Differs* from the Protocol where EC2 does: an instance is described for about an hour after its end; the time of an
eviction is taken from the spot request's status (when it was marked, plus `notice_s`), while the machine's own metadata
service has it exactly.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ParamValidationError
from botocore.loaders import Loader, create_loader

from bidding.market.model import EndCause, InstanceFact, InstanceState, LaunchRequest, Market, PricePoint
from bidding.market.money import to_micros
from bidding.market.spot_market import BadRequest, LaunchRefused, MarketUnreachable, TokenMismatch
from infra.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, SpotInstanceRequestTypeDef

_PRODUCT = "Linux/UNIX"
_PAGE = 1000
#: EC2's codes for a purchase that it refuses now.
_REFUSED = (
    "SpotMaxPriceTooLow",
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "InsufficientFreeAddressesInSubnet",
    "InstanceLimitExceeded",
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "SpotInstanceCountLimitExceeded",
)
#: EC2's codes for a client token that was used before: with other parameters, or for instances that have all been
#: terminated (since January 2025).
_TOKEN_USED = ("IdempotentParameterMismatch", "IdempotentInstanceTerminated")
#: EC2's codes for the end of an instance that never ran.
_FAILED_LAUNCH = ("Server.InsufficientInstanceCapacity", "Client.VolumeLimitExceeded", "Client.InternalError")
#: EC2's codes for server errors and throttling. The outcome is unknown or nothing was done; a retry helps.
#: A throttled purchase was not considered, so it was not refused: it is repeated with the same token.
_TRY_AGAIN = (
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "Unavailable",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
)
_MOMENT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


class Ec2SpotMarket:
    """The EC2 of one region.

    Parameters
    ----------
    settings : region, endpoint, image, subnets, security groups, instance profile and length of the notice.
    attempts : maximum number of attempts per call; boto3 retries throttling, server errors and failed connections.
    connect_s, read_s : timeouts of an attempt for the connection and for the answer, in real seconds.
    client : boto3's client; None creates one at the first call.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        attempts: int = 4,
        connect_s: float = 3.0,
        read_s: float = 20.0,
        client: "EC2Client | None" = None,
    ) -> None:
        self._settings = settings
        self._config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=connect_s,
            read_timeout=read_s,
            user_agent_extra="proteus",
        )
        self._made = client

    @property
    def _client(self) -> "EC2Client":
        """The client, created at the first call (it reads EC2's model, which takes a while)."""
        if self._made is None:
            core = botocore.session.get_session()
            core.register_component("data_loader", _loader())
            # EC2 writes times in ISO 8601; botocore's general parser takes most of the time of a long price history.
            core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=datetime.fromisoformat)
            try:
                self._made = boto3.session.Session(botocore_session=core).client(
                    "ec2",
                    region_name=self._settings.region,
                    endpoint_url=self._settings.ec2_endpoint_url,
                    config=self._config,
                )
            except (BotoCoreError, ValueError) as error:
                raise BadRequest("InvalidConfiguration", str(error)) from None
        return self._made

    def launch(self, request: LaunchRequest) -> list[InstanceFact]:
        """Buy instances; see `SpotMarket.launch`.

        Raises
        ------
        LaunchRefused
            If EC2 does not sell this now. Throttling is no refusal.
        MarketUnreachable
            Also if EC2 throttles, and if the purchase was made but its state is unknown: repeating the call with the
            same token buys nothing twice.
        TokenMismatch, BadRequest
        """
        params: dict[str, Any] = {
            "ImageId": self._settings.image_id,
            "InstanceType": request.market.instance_type,
            "MinCount": request.count,
            "MaxCount": request.count,
            "ClientToken": request.token,
            "Placement": {"AvailabilityZone": request.market.zone},
            "InstanceInitiatedShutdownBehavior": "terminate",
        }
        if request.user_data:
            params["UserData"] = request.user_data
        if request.tags:
            tags = [{"Key": key, "Value": value} for key, value in sorted(request.tags.items())]
            params["TagSpecifications"] = [{"ResourceType": "instance", "Tags": tags}]
        if request.market.zone in self._settings.subnet_ids:
            params["SubnetId"] = self._settings.subnet_ids[request.market.zone]
        if self._settings.security_group_ids:
            params["SecurityGroupIds"] = self._settings.security_group_ids
        if self._settings.instance_profile is not None:
            params["IamInstanceProfile"] = {"Name": self._settings.instance_profile}
        if request.bid_micros is not None:
            dollars, micros = divmod(request.bid_micros, 1_000_000)
            params["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "MaxPrice": f"{dollars}.{micros:06d}",
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            }
        try:
            instances = self._client.run_instances(**params)["Instances"]
        except (ClientError, BotoCoreError) as error:
            _raise(error, launching=True)
        instances.sort(key=lambda instance: instance.get("AmiLaunchIndex", 0))
        # The answer to a repeated purchase holds the present state, so an end has to be looked up.
        has_ended = any(instance["State"]["Name"] == "terminated" for instance in instances)
        try:
            requests = self._spot_requests(instances) if has_ended else {}
        except (ClientError, BotoCoreError) as error:
            # The instances are bought: no error here may count as a refusal.
            if isinstance(error, ClientError):
                raise MarketUnreachable(*_code_and_message(error)) from None
            raise MarketUnreachable(type(error).__name__, str(error)) from None
        return [self._fact(instance, requests, request.bid_micros) for instance in instances]

    def describe(self, tags: Iterable[tuple[str, str]] = ()) -> list[InstanceFact]:
        """Return the account's instances that carry all of `tags`; see `SpotMarket.describe`.

        Raises
        ------
        MarketUnreachable
            Also ``IncompleteAnswer``: for some seconds after a purchase EC2 returns a spot instance without its
            request. Such an instance would look like one without a bid.
        BadRequest
        """
        filters = [{"Name": f"tag:{key}", "Values": [_literal(value)]} for key, value in tags]
        try:
            pages = self._client.get_paginator("describe_instances").paginate(
                Filters=filters,  # type: ignore[arg-type]
                PaginationConfig={"PageSize": _PAGE},
            )
            reservations = [reservation for page in pages for reservation in page["Reservations"]]
            instances = [instance for reservation in reservations for instance in reservation["Instances"]]
            requests = self._spot_requests(instances)
        except (ClientError, BotoCoreError) as error:
            _raise(error)
        return [self._fact(instance, requests) for instance in instances]

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Terminate instances; see `SpotMarket.terminate`."""
        ids = list(dict.fromkeys(instance_ids))
        while ids:
            try:
                self._client.terminate_instances(InstanceIds=ids)
                return
            except BotoCoreError as error:
                _raise(error)
            except ClientError as error:
                code, message = _code_and_message(error)
                if not code.startswith("InvalidInstanceID"):
                    _raise(error)
                # One unknown id fails the whole call, and nothing is terminated: leave out the ids that EC2 names.
                unnamed = [instance_id for instance_id in ids if instance_id not in message]
                if len(unnamed) < len(ids):
                    ids = unnamed
                elif len(ids) > 1:
                    for instance_id in ids:
                        self.terminate([instance_id])
                    return
                else:
                    return

    def price_history(self, markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        """Return price changes; see `SpotMarket.price_history`."""
        wanted = dict.fromkeys(markets)
        if not wanted:
            return []
        last_before: dict[Market, PricePoint] = {}
        points: list[PricePoint] = []
        for point in self._history(wanted, from_s, until_s):
            if from_s < point.at_s <= until_s:
                points.append(point)
            elif point.at_s <= from_s and (
                point.market not in last_before or last_before[point.market].at_s < point.at_s
            ):  # fmt: skip
                last_before[point.market] = point
        points += last_before.values()
        return sorted(points, key=lambda point: (point.at_s, point.market))

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """Return the time of the newest price; see `SpotMarket.newest_price_s`. EC2 returns the newest first."""
        try:
            page = self._client.describe_spot_price_history(
                ProductDescriptions=[_PRODUCT],
                StartTime=datetime.fromtimestamp(after_s, UTC),
                EndTime=datetime.fromtimestamp(until_s, UTC),
                MaxResults=_PAGE,
            )
        except (ClientError, BotoCoreError) as error:
            _raise(error)
        times_s = [int(row["Timestamp"].timestamp()) for row in page["SpotPriceHistory"]]
        return max((at_s for at_s in times_s if after_s < at_s <= until_s), default=None)

    def _history(self, markets: Iterable[Market], from_s: int, until_s: int) -> Iterator[PricePoint]:
        wanted = dict.fromkeys(markets)
        types: Any = sorted({market.instance_type for market in wanted})  # the stubs know only the types of their day
        try:
            pages = self._client.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=types,
                ProductDescriptions=[_PRODUCT],
                Filters=[{"Name": "availability-zone", "Values": sorted({market.zone for market in wanted})}],
                StartTime=datetime.fromtimestamp(from_s, UTC),
                EndTime=datetime.fromtimestamp(until_s, UTC),
                PaginationConfig={"PageSize": _PAGE},
            )
            for page in pages:
                for row in page["SpotPriceHistory"]:
                    market = Market(row["InstanceType"], row["AvailabilityZone"])
                    if market in wanted:
                        yield PricePoint(market, int(row["Timestamp"].timestamp()), to_micros(row["SpotPrice"]))
        except (ClientError, BotoCoreError) as error:
            _raise(error)

    def _spot_requests(self, instances: "Iterable[InstanceTypeDef]") -> "dict[str, SpotInstanceRequestTypeDef]":
        """Return the spot requests of `instances` by instance id; they hold bids, marks and ends."""
        ids = [instance["SpotInstanceRequestId"] for instance in instances if "SpotInstanceRequestId" in instance]
        found: dict[str, SpotInstanceRequestTypeDef] = {}
        for start in range(0, len(ids), _PAGE):
            answer = self._client.describe_spot_instance_requests(SpotInstanceRequestIds=ids[start : start + _PAGE])
            found |= {row["InstanceId"]: row for row in answer["SpotInstanceRequests"] if "InstanceId" in row}
        return found

    def _fact(
        self,
        instance: "InstanceTypeDef",
        requests: "Mapping[str, SpotInstanceRequestTypeDef]",
        bid_micros: int | None = None,
    ) -> InstanceFact:
        instance_id = instance["InstanceId"]
        request = requests.get(instance_id)
        if request is not None:
            bid_micros = to_micros(request["SpotPrice"])
        elif "SpotInstanceRequestId" in instance and bid_micros is None:
            raise MarketUnreachable("IncompleteAnswer", f"EC2 does not return the spot request of {instance_id} yet")
        state = InstanceState(_STATES.get(instance["State"]["Name"], instance["State"]["Name"]))
        status: Mapping[str, Any] = request["Status"] if request is not None else {}
        notice_at_s = ended_at_s = end_cause = None
        end_reason = ""
        if state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED):
            end_reason = instance.get("StateReason", {}).get("Code", "")
            end_cause = EndCause.FAILED if end_reason.startswith(_FAILED_LAUNCH) else EndCause.USER
            end_cause = EndCause.EVICTED if end_reason.startswith("Server.Spot") else end_cause
            ended_at_s = _end_s(instance, status)
        elif status.get("Code") == "marked-for-termination":
            notice_at_s = int(status["UpdateTime"].timestamp()) + self._settings.notice_s
        return InstanceFact(
            instance_id=instance_id,
            market=Market(instance["InstanceType"], instance["Placement"]["AvailabilityZone"]),
            state=state,
            launched_at_s=int(instance["LaunchTime"].timestamp()),
            bid_micros=bid_micros,
            token=instance.get("ClientToken", ""),
            tags={tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())},
            address=instance.get("PrivateIpAddress", ""),
            notice_at_s=notice_at_s,
            ended_at_s=ended_at_s,
            end_cause=end_cause,
            end_reason=end_reason,
        )


@lru_cache(maxsize=1)
def _loader() -> Loader:
    """Return a loader of EC2's model; it caches the model, which makes further clients ten times as fast."""
    return create_loader()


#: States of EC2 that are not distinguished here.
_STATES = {"stopping": "stopped"}


def _end_s(instance: "InstanceTypeDef", status: Mapping[str, Any]) -> int | None:
    """Return when an instance ended: from its spot request, else from the reason's text; None if in neither."""
    if str(status.get("Code", "")).startswith("instance-terminated"):
        return int(status["UpdateTime"].timestamp())
    found = _MOMENT.search(instance.get("StateTransitionReason", ""))
    if found is None:
        return None
    return int(datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())


def _literal(value: str) -> str:
    """Return the filter that matches exactly `value`."""
    return re.sub(r"([*?\\])", r"\\\1", value)


def _code_and_message(error: ClientError) -> tuple[str, str]:
    body = error.response.get("Error", {})
    return str(body.get("Code", "Unknown")), str(body.get("Message", ""))


def _raise(error: ClientError | BotoCoreError, launching: bool = False) -> NoReturn:
    """Raise the Protocol's exception for an error of boto3."""
    if isinstance(error, NoCredentialsError | NoRegionError | ParamValidationError):
        raise BadRequest(type(error).__name__, str(error)) from None
    if not isinstance(error, ClientError):
        raise MarketUnreachable(type(error).__name__, str(error)) from None
    code, message = _code_and_message(error)
    if launching and code in _TOKEN_USED:
        raise TokenMismatch(code, message) from None
    if launching and code in _REFUSED:
        raise LaunchRefused(code, message) from None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _TRY_AGAIN or status >= 500:
        raise MarketUnreachable(code, message) from None
    raise BadRequest(code, message) from None
