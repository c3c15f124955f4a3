"""The EC2 actions over a simulated market: parameters in, answer out, in EC2's shapes.

*Differs* from EC2: a launch that names no zone goes to the first one; `stop` does not exist (an instance that shuts
itself down is terminated, also if the request does not name the behaviour); spot requests are one-time and end with
their instance; one product, Linux/UNIX.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from bidding.market.model import EndCause, InstanceFact, InstanceState, LaunchRequest, Market
from bidding.market.money import Micros, to_micros
from infra.simulated_ec2.market import SimSpotMarket
from infra.simulated_ec2.price_history import PRODUCT, SpotPriceHistory, offset_of, token_of
from infra.simulated_ec2.wire_protocol import Ec2Error, unknown_action

Params = Mapping[str, Any]
Answer = dict[str, Any]
T = TypeVar("T")

_PAGE = 1000
_STATE_CODES = {
    InstanceState.PENDING: 0,
    InstanceState.RUNNING: 16,
    InstanceState.SHUTTING_DOWN: 32,
    InstanceState.TERMINATED: 48,
}

#: Image reported for a machine that an earlier process of this market sold.
_FORGOTTEN_IMAGE = "ami-00000000"


class Ec2Actions:
    """The actions of one endpoint.

    Parameters
    ----------
    market : the simulated market.
    region : name of its region.
    """

    def __init__(self, market: SimSpotMarket, region: str) -> None:
        self._market = market
        self._region = region
        self._history = SpotPriceHistory(market)
        self._images: dict[str, str] = {}
        #: Instances that shut themselves down.
        self._shut_down: dict[str, None] = {}
        self._actions: dict[str, tuple[str, Callable[[Params], Answer]]] = {
            "RunInstances": ("launch", self._run_instances),
            "DescribeInstances": ("describe", self._describe_instances),
            "TerminateInstances": ("terminate", self._terminate_instances),
            "DescribeSpotInstanceRequests": ("describe", self._describe_spot_instance_requests),
            "DescribeSpotPriceHistory": ("price_history", self._history.describe),
            "DescribeAvailabilityZones": ("describe", self._describe_availability_zones),
        }

    def operation(self, action: str) -> str:
        """Return the name of an action in fault scripts; `Ec2Error` for an unknown action."""
        if action not in self._actions:
            raise unknown_action(action)
        return self._actions[action][0]

    def carry_out(self, action: str, params: Params) -> Answer:
        """Return the answer to a request.

        Raises
        ------
        Ec2Error, MarketError
            Both carry EC2's code and message.
        """
        if params.get("DryRun"):
            raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        return self._actions[action][1](params)

    def shut_down(self, instance_id: str) -> None:
        """Record that an instance shut itself down."""
        if not self._market.has_ended(instance_id):
            self._shut_down[instance_id] = None
            self._market.shut_down(instance_id)

    # Actions

    def _run_instances(self, params: Params) -> Answer:
        for name in ("InstanceType", "ImageId", "MinCount", "MaxCount"):
            if name not in params:
                raise Ec2Error("MissingParameter", f"The request must contain the parameter {name}")
        if not 1 <= params["MinCount"] <= params["MaxCount"]:
            raise Ec2Error("InvalidParameterCombination", "MinCount must be at least 1 and at most MaxCount")
        if params.get("InstanceInitiatedShutdownBehavior", "terminate") != "terminate":
            raise Ec2Error("UnsupportedOperation", "InstanceInitiatedShutdownBehavior: only terminate is supported")
        market = Market(
            params["InstanceType"], params.get("Placement", {}).get("AvailabilityZone", self._market.zones[0])
        )
        request = LaunchRequest(
            token=params.get("ClientToken", ""),
            market=market,
            count=params["MaxCount"],
            bid_micros=self._bid(market, params),
            user_data=_user_data(params.get("UserData", "")),
            tags={
                tag["Key"]: tag.get("Value", "")
                for spec in params.get("TagSpecifications", ())
                if spec.get("ResourceType") == "instance"
                for tag in spec.get("Tags", ())
            },
        )
        facts = self._market.launch(request)
        for fact in facts:
            self._images.setdefault(fact.instance_id, params["ImageId"])
        return self._reservation(facts)

    def _bid(self, market: Market, params: Params) -> Micros | None:
        options = params.get("InstanceMarketOptions")
        if options is None:
            return None
        spot = options.get("SpotOptions", {})
        if options.get("MarketType") != "spot":
            raise Ec2Error("InvalidParameterValue", "InstanceMarketOptions: MarketType must be spot")
        if spot.get("SpotInstanceType", "one-time") != "one-time":
            raise Ec2Error("UnsupportedOperation", "SpotInstanceType: only one-time is supported")
        if spot.get("InstanceInterruptionBehavior", "terminate") != "terminate":
            raise Ec2Error("UnsupportedOperation", "InstanceInterruptionBehavior: only terminate is supported")
        if "MaxPrice" not in spot:
            kind = self._market.sold(market)
            return kind.on_demand_micros if kind else to_micros(1)  # an unknown type is refused by the market
        try:
            return to_micros(spot["MaxPrice"])
        except ValueError:
            raise Ec2Error("InvalidParameterValue", f"Invalid value '{spot['MaxPrice']}' for MaxPrice") from None

    def _describe_instances(self, params: Params) -> Answer:
        facts = self._only(self._market.describe(), params.get("InstanceIds", ()))
        filters = params.get("Filters", ())
        page, token = _page(facts, lambda fact: _matches(_instance_values(fact), filters), params)
        reservations: dict[str, list[InstanceFact]] = {}
        for fact in page:
            reservations.setdefault(f"{fact.market.zone}/{fact.token}", []).append(fact)
        return {"Reservations": [self._reservation(group) for group in reservations.values()], "NextToken": token}

    def _terminate_instances(self, params: Params) -> Answer:
        ids = params.get("InstanceIds", ())
        before = {fact.instance_id: fact for fact in self._only(self._market.describe(), ids)} if ids else {}
        self._market.terminate(ids)
        return {
            "TerminatingInstances": [
                {
                    "InstanceId": instance_id,
                    "PreviousState": _state(before[instance_id].state),
                    "CurrentState": _state(
                        InstanceState.SHUTTING_DOWN if before[instance_id].alive else InstanceState.TERMINATED
                    ),
                }
                for instance_id in ids
            ]
        }

    def _describe_spot_instance_requests(self, params: Params) -> Answer:
        facts = [fact for fact in self._market.describe() if fact.bid_micros is not None]
        wanted = params.get("SpotInstanceRequestIds", ())
        facts_by_id = {_request_id(fact): fact for fact in facts}
        if missing := [request_id for request_id in wanted if request_id not in facts_by_id]:
            raise Ec2Error(
                "InvalidSpotInstanceRequestID.NotFound",
                f"The spot instance request ID '{', '.join(missing)}' does not exist",
            )
        rows = [self._spot_request(facts_by_id[request_id]) for request_id in wanted or facts_by_id]
        filters = params.get("Filters", ())
        page, token = _page(rows, lambda row: _matches(_request_values(row), filters), params)
        return {"SpotInstanceRequests": page, "NextToken": token}

    def _describe_availability_zones(self, params: Params) -> Answer:
        self._market.enter("describe")
        names = params.get("ZoneNames") or self._market.zones
        for name in names:
            if name not in self._market.zones:
                raise Ec2Error("InvalidParameterValue", f"Invalid availability zone: [{name}]")
        return {
            "AvailabilityZones": [
                {
                    "ZoneName": name,
                    "State": "available",
                    "RegionName": self._region,
                    "ZoneType": "availability-zone",
                    "OptInStatus": "opt-in-not-required",
                }
                for name in names
            ]
        }

    # Shapes

    @staticmethod
    def _only(facts: list[InstanceFact], ids: Iterable[str]) -> list[InstanceFact]:
        wanted = dict.fromkeys(ids)
        if not wanted:
            return facts
        facts_by_id = {fact.instance_id: fact for fact in facts}
        if malformed := [
            instance_id for instance_id in wanted if not re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", instance_id)
        ]:
            raise Ec2Error("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
        if missing := [instance_id for instance_id in wanted if instance_id not in facts_by_id]:
            subject, verb = ("IDs", "do") if len(missing) > 1 else ("ID", "does")
            raise Ec2Error(
                "InvalidInstanceID.NotFound", f"The instance {subject} '{', '.join(missing)}' {verb} not exist"
            )
        return [facts_by_id[instance_id] for instance_id in wanted]

    def _reservation(self, facts: list[InstanceFact]) -> Answer:
        return {
            "ReservationId": f"r-{facts[0].instance_id[2:]}",
            "OwnerId": "000000000000",
            "Instances": [self._instance(fact, index) for index, fact in enumerate(facts)],
        }

    def _instance(self, fact: InstanceFact, index: int) -> Answer:
        spot_fields = {"InstanceLifecycle": "spot", "SpotInstanceRequestId": _request_id(fact)}
        reason = self._end_reason(fact)
        transition = ""
        if fact.ended_at_s is not None:
            by_user = f"User initiated ({_moment(fact.ended_at_s):%Y-%m-%d %H:%M:%S} GMT)"
            transition = reason if fact.end_cause is EndCause.EVICTED else by_user
        return {
            "InstanceId": fact.instance_id,
            "ImageId": self._images.get(fact.instance_id, _FORGOTTEN_IMAGE),
            "InstanceType": fact.market.instance_type,
            "LaunchTime": _moment(fact.launched_at_s),
            "Placement": {"AvailabilityZone": fact.market.zone, "Tenancy": "default"},
            "State": _state(fact.state),
            "StateTransitionReason": transition,
            "StateReason": {"Code": reason, "Message": f"{reason}: {_REASONS[reason]}"} if reason else None,
            "PrivateIpAddress": fact.address or None,
            "ClientToken": fact.token,
            "AmiLaunchIndex": index,
            "Architecture": "x86_64",
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(fact.tags.items())],
            **(spot_fields if fact.bid_micros is not None else {}),
        }

    def _end_reason(self, fact: InstanceFact) -> str:
        if fact.end_cause is None:
            return ""
        if fact.end_cause is EndCause.EVICTED:
            return "Server.SpotInstanceTermination"
        return (
            "Client.InstanceInitiatedShutdown"
            if fact.instance_id in self._shut_down
            else "Client.UserInitiatedShutdown"
        )

    def _spot_request(self, fact: InstanceFact) -> Answer:
        assert fact.bid_micros is not None
        marked_at_s = self._market.marked_at_s(fact.instance_id)
        if fact.ended_at_s is not None:
            was_evicted = fact.end_cause is EndCause.EVICTED
            has_capacity = self._market.has_capacity(fact.market, fact.ended_at_s)
            why = "by-user" if not was_evicted else "by-price" if has_capacity else "no-capacity"
            code = f"instance-terminated-{why}"
            since_s = fact.ended_at_s
        elif marked_at_s is not None:
            code, since_s = "marked-for-termination", marked_at_s
        else:
            code, since_s = "fulfilled", fact.launched_at_s
        return {
            "SpotInstanceRequestId": _request_id(fact),
            "InstanceId": fact.instance_id,
            "SpotPrice": f"{fact.bid_micros / 1e6:.6f}",
            "State": "active" if fact.ended_at_s is None else "closed",
            "Status": {"Code": code, "Message": f"{code.replace('-', ' ')}.", "UpdateTime": _moment(since_s)},
            "Type": "one-time",
            "InstanceInterruptionBehavior": "terminate",
            "CreateTime": _moment(fact.launched_at_s),
            "LaunchedAvailabilityZone": fact.market.zone,
            "ProductDescription": PRODUCT,
            "LaunchSpecification": {
                "InstanceType": fact.market.instance_type,
                "ImageId": self._images.get(fact.instance_id, _FORGOTTEN_IMAGE),
                "Placement": {"AvailabilityZone": fact.market.zone},
            },
        }


_REASONS = {
    "Server.SpotInstanceTermination": "Spot instance termination",
    "Client.UserInitiatedShutdown": "User initiated shutdown",
    "Client.InstanceInitiatedShutdown": "Instance initiated shutdown",
}


def _moment(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _state(state: InstanceState) -> Answer:
    return {"Code": _STATE_CODES[state], "Name": state.value}


def _request_id(fact: InstanceFact) -> str:
    return f"sir-{fact.instance_id[2:]}"


def _user_data(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Ec2Error("InvalidParameterValue", "Invalid BASE64 encoding of user data, or no UTF-8 text") from None


def _instance_values(fact: InstanceFact) -> dict[str, list[str]]:
    """Return the values that filters of DescribeInstances match."""
    is_spot = fact.bid_micros is not None
    return {
        "instance-id": [fact.instance_id],
        "instance-state-name": [fact.state.value],
        "instance-state-code": [str(_STATE_CODES[fact.state])],
        "instance-type": [fact.market.instance_type],
        "instance-lifecycle": ["spot"] if is_spot else [],
        "availability-zone": [fact.market.zone],
        "client-token": [fact.token],
        "spot-instance-request-id": [_request_id(fact)] if is_spot else [],
        "tag-key": list(fact.tags),
        **{f"tag:{key}": [value] for key, value in fact.tags.items()},
    }


def _request_values(row: Answer) -> dict[str, list[str]]:
    """Return the values that filters of DescribeSpotInstanceRequests match."""
    return {
        "instance-id": [row["InstanceId"]],
        "spot-instance-request-id": [row["SpotInstanceRequestId"]],
        "state": [row["State"]],
        "status-code": [row["Status"]["Code"]],
        "launched-availability-zone": [row["LaunchedAvailabilityZone"]],
    }


def _matches(values: Mapping[str, list[str]], filters: Iterable[Params]) -> bool:
    """Return whether every filter matches; in its values ``*`` stands for any text and ``?`` for any character."""
    for condition in filters:
        name = condition.get("Name", "")
        if name not in values and not name.startswith("tag:"):
            raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
        patterns = [_pattern(wanted) for wanted in condition.get("Values", ())]
        if not any(re.fullmatch(pattern, value, re.DOTALL) for pattern in patterns for value in values.get(name, [])):
            return False
    return True


def _pattern(wanted: str) -> str:
    """Return the regular expression of a filter's value; a backslash escapes a wildcard."""
    wild = {"*": ".*", "?": "."}
    parts = re.findall(r"\\([*?\\])|([*?])|(.)", wanted, re.DOTALL)
    return "".join(wild.get(star) or re.escape(escaped or plain) for escaped, star, plain in parts)


def _page(rows: list[T], is_match: Callable[[T], bool], params: Params) -> tuple[list[T], str | None]:
    """Return one page of the `rows` to keep, and the token of the next.

    A token is an index into all rows, which only grow at their end, so no row is missed when others cease to match.
    """
    limit = min(params.get("MaxResults", _PAGE), _PAGE)
    page: list[T] = []
    for index in range(offset_of(params.get("NextToken")), len(rows)):
        if is_match(rows[index]):
            if len(page) == limit:
                return page, token_of(index)
            page.append(rows[index])
    return page, None
