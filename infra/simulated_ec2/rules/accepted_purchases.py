"""Which purchases the market accepts, and how many machines they get: zones, types, bids, capacity and quotas."""

from collections.abc import Callable, Mapping, Sequence

from proteus_spot.bidding.market.model import InstanceState, InstanceType, LaunchRequest, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.quotas import quota_of
from proteus_spot.bidding.market.spot_market import BadRequest, LaunchRefused
from proteus_spot.infra.simulated_ec2.faults import Fault
from proteus_spot.infra.simulated_ec2.held_instances import LaunchOptions
from proteus_spot.infra.simulated_ec2.rules.machine_changes import MachineChanges
from proteus_spot.infra.simulated_ec2.rules.refusals import check_parameters, no_capacity, over_quota, price_above_bid


def check_purchase(request: LaunchRequest, zones: Sequence[str], kind: InstanceType | None, has_price: bool) -> None:
    """Refuse a request that is invalid at any price.

    Parameters
    ----------
    zones : those of the region.
    kind : the type, as the region sells it; None: there is no such type.
    has_price : whether it is on the spot market.

    Raises
    ------
    BadRequest, LaunchRefused
    """
    market = request.market
    if market.zone not in zones:
        raise BadRequest(
            "InvalidParameterValue", f"Invalid availability zone: [{market.zone}] (is none of {list(zones)})"
        )
    if kind is None:
        raise BadRequest(
            "InvalidParameterValue", f"Invalid value '{market.instance_type}' for InstanceType: unknown type"
        )
    if request.bid_micros is not None and not has_price:
        raise LaunchRefused("Unsupported", f"{market} is not on the spot market: it has no price")
    check_parameters(request)


def check_bid(request: LaunchRequest, price_micros: Micros | None) -> None:
    """Refuse a request whose bid is below the price; `price_micros` is None before the market's first price.

    Raises
    ------
    LaunchRefused
    """
    if price_micros is None:
        raise no_capacity(request.market)
    if request.bid_micros is not None and price_micros > request.bid_micros:
        raise price_above_bid(request.bid_micros, price_micros)


def available_count(
    request: LaunchRequest, options: LaunchOptions, scarce: Fault | None, there: int | None, room: int | None
) -> int:
    """Return how many machines a purchase gets.

    Parameters
    ----------
    scarce : a fault that leaves few machines for sale; None: there are enough.
    there : how many more the market has; None: any number.
    room : how many more the account's quota allows; None: no limit.

    Raises
    ------
    LaunchRefused
        If that is too few.
    """
    least = request.count if options.at_least is None else options.at_least
    count = request.count if scarce is None else min(request.count, scarce.available)
    count = count if there is None else min(count, there)
    if count < max(least, 1):
        raise no_capacity(request.market)
    if room is not None and room < least:
        raise over_quota(request.bid_micros is not None)
    return count if room is None else min(count, room)


def quota_room(
    request: LaunchRequest,
    account: str,
    machines: MachineChanges,
    quotas: Mapping[str, int],
    sold: Callable[[Market], InstanceType | None],
) -> int | None:
    """Return how many more machines the account's quota allows; None without a quota."""
    quota = quota_of(request.market.instance_type, request.bid_micros is not None)
    limit = None if quota is None else quotas.get(quota.code)
    if limit is None:
        return None

    def vcpus(market: Market) -> int:
        kind = sold(market)
        assert kind is not None, f"{market} was sold"
        return kind.vcpu

    used = sum(
        vcpus(held.request.market)
        for held in machines
        if held.options.account == account
        and held.state(machines.now_s) in (InstanceState.PENDING, InstanceState.RUNNING)
        and quota_of(held.request.market.instance_type, held.is_spot) is quota
    )
    return max(limit - used, 0) // vcpus(request.market)
