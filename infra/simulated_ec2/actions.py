"""The EC2 actions over a simulated market: parameters in, answer out, in EC2's shapes.

*Differs* from EC2: a launch that names no zone goes to the first one; an instance that shuts itself down is terminated,
also if the request does not name the behaviour; spot requests are one-time and end with their instance; one product,
Linux/UNIX; a stop, a start and a reboot are done at once.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from proteus_spot.bidding.market.model import EndCause, InstanceFact, InstanceState, LaunchRequest, Market
from proteus_spot.bidding.market.money import Micros, to_micros
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT, LaunchOptions
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.price_history import PRODUCT, SpotPriceHistory
from proteus_spot.infra.simulated_ec2.rules.lagging_reads import Listing
from proteus_spot.infra.simulated_ec2.wire_protocol import Ec2Error, Params, matches, page_of, unknown_action

Answer = dict[str, Any]

#: Placement scores in an answer.
_SCORES = 10
_STATE_CODES = {
    InstanceState.PENDING: 0,
    InstanceState.RUNNING: 16,
    InstanceState.SHUTTING_DOWN: 32,
    InstanceState.TERMINATED: 48,
    InstanceState.STOPPED: 80,
}
#: Parameters that a purchase is made of; all others are compared by their digest where a client token is used again.
_PURCHASE = ("ClientToken", "DryRun")

_ROOT_DEVICE = "/dev/xvda"
#: Image reported for a machine that an earlier process of this market sold.
_FORGOTTEN_IMAGE = "ami-00000000"


class Ec2Actions:
    """The actions of one endpoint, for one account.

    Parameters
    ----------
    market : the simulated market.
    region : name of its region.
    account : the account whose instances are listed and bought.
    """

    def __init__(self, market: SimSpotMarket, region: str, account: str = ACCOUNT) -> None:
        self._market = market
        self._region = region
        self._account = account
        self._history = SpotPriceHistory(market)
        self._images: dict[str, str] = {}
        self._actions: dict[str, tuple[str, Callable[[Params], Answer]]] = {
            "RunInstances": ("launch", self._run_instances),
            "DescribeInstances": ("describe", self._describe_instances),
            "TerminateInstances": ("terminate", self._terminate_instances),
            "StopInstances": ("stop", self._stop_instances),
            "StartInstances": ("start", self._start_instances),
            "RebootInstances": ("reboot", self._reboot_instances),
            "DescribeSpotInstanceRequests": ("describe", self._describe_spot_instance_requests),
            "CancelSpotInstanceRequests": ("terminate", self._cancel_spot_instance_requests),
            "DescribeSpotPriceHistory": ("price_history", self._history.describe),
            "GetSpotPlacementScores": ("scores", self._get_spot_placement_scores),
            "DescribeAvailabilityZones": ("describe", self._describe_availability_zones),
            "DescribeImages": ("describe", self._describe_images),
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
        operation, act = self._actions[action]
        if params.get("DryRun"):
            self._market.enter(operation)
            raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        return act(params)

    # Actions

    def _run_instances(self, params: Params) -> Answer:
        for name in ("InstanceType", "ImageId", "MinCount", "MaxCount"):
            if name not in params:
                raise Ec2Error("MissingParameter", f"The request must contain the parameter {name}")
        if not 1 <= params["MinCount"] <= params["MaxCount"]:
            raise Ec2Error("InvalidParameterCombination", "MinCount must be at least 1 and at most MaxCount")
        if params.get("InstanceInitiatedShutdownBehavior", "terminate") != "terminate":
            raise Ec2Error("UnsupportedOperation", "InstanceInitiatedShutdownBehavior: only terminate is supported")
        zone = params.get("Placement", {}).get("AvailabilityZone")
        market = Market(params["InstanceType"], zone or self._market.zones[0])
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
        options = LaunchOptions(
            account=self._account,
            at_least=params["MinCount"] if params["MinCount"] < params["MaxCount"] else None,
            zonal=zone is not None or "SubnetId" in params,
            other=_digest({name: value for name, value in params.items() if name not in _PURCHASE}),
        )
        facts = self._market.purchase(request, options)
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
        facts = self._only(self._listing("describe").instances, params.get("InstanceIds", ()))
        filters = params.get("Filters", ())
        page, token = page_of(facts, lambda fact: matches(_instance_values(fact), filters), params)
        reservations: dict[str, list[InstanceFact]] = {}
        for fact in page:
            reservations.setdefault(f"{fact.market.zone}/{fact.token}", []).append(fact)
        return {"Reservations": [self._reservation(group) for group in reservations.values()], "NextToken": token}

    def _terminate_instances(self, params: Params) -> Answer:
        before = self._named("terminate", params)
        self._market.end(fact.instance_id for fact in before)
        return {
            "TerminatingInstances": [
                _transition(fact, InstanceState.TERMINATED if _is_gone(fact) else InstanceState.SHUTTING_DOWN)
                for fact in before
            ]
        }

    def _stop_instances(self, params: Params) -> Answer:
        before = self._named("stop", params)
        for fact in before:
            self._market.stop(fact.instance_id)
        return {"StoppingInstances": [_transition(fact, InstanceState.STOPPED) for fact in before]}

    def _start_instances(self, params: Params) -> Answer:
        before = self._named("start", params)
        for fact in before:
            self._market.start(fact.instance_id)
        return {
            "StartingInstances": [
                _transition(fact, InstanceState.PENDING if fact.state is InstanceState.STOPPED else fact.state)
                for fact in before
            ]
        }

    def _reboot_instances(self, params: Params) -> Answer:
        for fact in self._named("reboot", params):
            self._market.reboot(fact.instance_id)
        return {}

    def _listing(self, operation: str) -> Listing:
        self._market.enter(operation)
        return self._market.listing(self._account)

    def _named(self, operation: str, params: Params) -> list[InstanceFact]:
        """Return the instances that the request names, as a read shows them."""
        ids = params.get("InstanceIds", ())
        listing = self._listing(operation)
        return self._only(listing.instances, ids) if ids else []

    def _describe_spot_instance_requests(self, params: Params) -> Answer:
        facts_by_id = {_request_id(fact): fact for fact in self._listing("describe").requests.values()}
        wanted = params.get("SpotInstanceRequestIds", ())
        if missing := [request_id for request_id in wanted if request_id not in facts_by_id]:
            raise Ec2Error(
                "InvalidSpotInstanceRequestID.NotFound",
                f"The spot instance request ID '{', '.join(missing)}' does not exist",
            )
        rows = [self._spot_request(facts_by_id[request_id]) for request_id in wanted or facts_by_id]
        filters = params.get("Filters", ())
        page, token = page_of(rows, lambda row: matches(_request_values(row), filters), params)
        return {"SpotInstanceRequests": page, "NextToken": token}

    def _cancel_spot_instance_requests(self, params: Params) -> Answer:
        """Say that the requests are cancelled: each was fulfilled at once, and its instance lives on."""
        wanted = params.get("SpotInstanceRequestIds", ())
        self._describe_spot_instance_requests({"SpotInstanceRequestIds": wanted})
        return {
            "CancelledSpotInstanceRequests": [
                {"SpotInstanceRequestId": request_id, "State": "cancelled"} for request_id in wanted
            ]
        }

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
                    "ZoneId": self._zone_id(name),
                    "State": "available",
                    "RegionName": self._region,
                    "ZoneType": "availability-zone",
                    "OptInStatus": "opt-in-not-required",
                }
                for name in names
            ]
        }

    def _zone_id(self, zone: str) -> str:
        """Return the name of a zone that is the same for every account."""
        return f"{self._region}-az{self._market.zones.index(zone) + 1}"

    def _get_spot_placement_scores(self, params: Params) -> Answer:
        if params.get("TargetCapacityUnitType", "units") != "units" or not params.get("SingleAvailabilityZone"):
            raise Ec2Error("UnsupportedOperation", "only scores of single zones, for a number of machines")
        if self._region not in params.get("RegionNames", [self._region]):
            return {"SpotPlacementScores": []}
        scores = self._market.placement_scores(params.get("InstanceTypes", ()), params["TargetCapacity"])
        best = sorted(scores.items(), key=lambda score: (-score[1], score[0]))[: params.get("MaxResults", _SCORES)]
        return {
            "SpotPlacementScores": [
                {"Region": self._region, "AvailabilityZoneId": self._zone_id(zone), "Score": score}
                for zone, score in best
            ]
        }

    def _describe_images(self, params: Params) -> Answer:
        """Return the images that are asked for: a simulated machine boots from any."""
        self._market.enter("describe")
        return {
            "Images": [
                {
                    "ImageId": image,
                    "State": "available",
                    "Architecture": "x86_64",
                    "RootDeviceType": "ebs",
                    "RootDeviceName": _ROOT_DEVICE,
                }
                for image in params.get("ImageIds", ())
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
            "OwnerId": self._account,
            "Instances": [self._instance(fact, index) for index, fact in enumerate(facts)],
        }

    def _instance(self, fact: InstanceFact, index: int) -> Answer:
        spot_fields = {"InstanceLifecycle": "spot", "SpotInstanceRequestId": _request_id(fact)}
        reason = fact.end_reason
        transition = reason
        if fact.end_cause is EndCause.USER and fact.ended_at_s is not None:
            transition = f"User initiated ({_moment(fact.ended_at_s):%Y-%m-%d %H:%M:%S} GMT)"
        return {
            "InstanceId": fact.instance_id,
            "ImageId": self._images.get(fact.instance_id, _FORGOTTEN_IMAGE),
            "InstanceType": fact.market.instance_type,
            "LaunchTime": _moment(fact.launched_at_s),
            "Placement": {"AvailabilityZone": fact.market.zone, "Tenancy": "default"},
            "State": _state(fact.state),
            "StateTransitionReason": transition,
            "StateReason": {"Code": reason, "Message": f"{reason}: {_reason(reason)}"} if reason else None,
            "PrivateIpAddress": fact.address or None,
            "ClientToken": fact.token,
            "AmiLaunchIndex": index,
            "Architecture": "x86_64",
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(fact.tags.items())],
            **(spot_fields if fact.bid_micros is not None else {}),
        }

    def _spot_request(self, fact: InstanceFact) -> Answer:
        assert fact.bid_micros is not None
        marked_at_s = self._market.marked_at_s(fact.instance_id) if fact.notice_at_s is not None else None
        if fact.ended_at_s is not None:
            is_out_bid = self._market.is_out_bid(fact, fact.ended_at_s)
            why = {
                EndCause.EVICTED: "by-price" if is_out_bid else "no-capacity",
                EndCause.FAILED: "by-service",
            }.get(fact.end_cause or EndCause.USER, "by-user")
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


def _reason(code: str) -> str:
    """Return the words of a reason's code, as in "User initiated shutdown"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code.rpartition(".")[2])
    return words.capitalize()


def _digest(params: Params) -> str:
    return hashlib.sha256(json.dumps(params, sort_keys=True, default=str).encode()).hexdigest()


def _is_gone(fact: InstanceFact) -> bool:
    return fact.state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)


def _transition(fact: InstanceFact, state: InstanceState) -> Answer:
    """Return the change of state that EC2 reports; one that has ended does not change."""
    now = fact.state if _is_gone(fact) else state
    return {"InstanceId": fact.instance_id, "PreviousState": _state(fact.state), "CurrentState": _state(now)}


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
