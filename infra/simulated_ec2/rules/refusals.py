"""The market's refusals, with EC2's codes and words."""

from collections.abc import Mapping
from types import MappingProxyType

from proteus_spot.bidding.market.model import LaunchRequest, Market
from proteus_spot.bidding.market.money import Micros, to_dollars
from proteus_spot.bidding.market.spot_market import BadRequest, LaunchRefused, MarketError, market_error

_TOKEN_LENGTH = 64
_USER_DATA_BYTES = 16384
#: A bid must be above this, a tenth of a cent, as on EC2.
_LEAST_BID: Micros = 1000
#: EC2's messages of refusals that have nothing to do with the request itself.
_DENIALS: Mapping[str, str] = MappingProxyType(
    {
        "RequestExpired": "Request has expired.",
        "ExpiredToken": "The security token included in the request is expired",
        "AuthFailure": "AWS was not able to validate the provided access credentials",
        "UnauthorizedOperation": "You are not authorized to perform this operation.",
    }
)


def check_parameters(request: LaunchRequest) -> None:
    """Refuse a request that no market could carry out.

    Raises
    ------
    BadRequest
    """
    if request.count < 1:
        raise BadRequest("InvalidParameterValue", f"Invalid count {request.count}: buy at least one instance")
    if request.bid_micros is not None and request.bid_micros <= _LEAST_BID:
        raise BadRequest(
            "InvalidParameterValue",
            f"a maximum price of {to_dollars(request.bid_micros):g} is too low: it must be more than 0.001",
        )
    if not request.token or len(request.token) > _TOKEN_LENGTH or not request.token.isascii():
        raise BadRequest("InvalidParameterValue", "a client token is 1 to 64 ASCII characters")
    if len(request.user_data.encode()) > _USER_DATA_BYTES:
        raise BadRequest("InvalidParameterValue", "User data is limited to 16384 bytes")


def denied(code: str) -> MarketError:
    """Return the refusal of a call that has nothing to do with what it asks for; ``RequestExpired`` without a code."""
    code = code or "RequestExpired"
    return market_error(code, _DENIALS.get(code, "The request was denied."))


def cannot_stop(instance_id: str) -> BadRequest:
    """Return the refusal to stop a spot instance: that of a one-time request cannot be stopped."""
    return BadRequest("UnsupportedOperation", f"You can't stop the Spot Instance '{instance_id}' of a one-time request")


def cannot_start(instance_id: str) -> BadRequest:
    """Return the refusal to start an instance that has ended."""
    return BadRequest(
        "IncorrectInstanceState", f"The instance '{instance_id}' is not in a state from which it can be started."
    )


def no_capacity(market: Market) -> LaunchRefused:
    """Return the refusal of a market that has no machine left."""
    return LaunchRefused(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {market.instance_type} capacity in {market.zone}.",
    )


def over_quota(is_spot: bool) -> LaunchRefused:
    """Return the refusal of more vCPUs than the account may hold."""
    if is_spot:
        return LaunchRefused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    return LaunchRefused(
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the "
        "specified instance type belongs to.",
    )


def price_above_bid(bid_micros: Micros, price_micros: Micros) -> LaunchRefused:
    """Return the refusal of a bid below the price."""
    return LaunchRefused(
        "SpotMaxPriceTooLow",
        f"Your Spot request price of {to_dollars(bid_micros):g} is lower than the minimum required "
        f"Spot request fulfillment price of {to_dollars(price_micros):g}.",
    )
