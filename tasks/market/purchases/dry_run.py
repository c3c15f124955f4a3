"""Purchases of a job that the market checks without making them, before anything is bought or written."""

import re
from collections.abc import Callable, Sequence

from proteus_spot.bidding.market.failures import Failure
from proteus_spot.bidding.market.model import LaunchRequest, Market, Tier
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.market.spot_market import AccessRefused, BadRequest, MarketError
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.market.listed_machines import job_machines
from proteus_spot.tasks.market.purchases.requests import launch_request
from proteus_spot.tasks.task_runtime import current_runtime

#: EC2 names the action that is missing in the message of `UnauthorizedOperation`.
_ACTION = re.compile(r"not authorized to perform: (\S+)( on resource: \S+)?")
#: A bid for which only its form counts.
DRY_BID = to_micros("1")
#: Maximum number of spot markets that are tried.
MOST_TRIED = 6


def check_purchases(spec: JobSpec) -> None:
    """Refuse a job whose purchases the market would always refuse, and credentials of another account.

    The market checks a machine of the reliable tier and one in some of the job's spot markets (`markets_to_try`):
    credentials, permissions, image, network and instance profile. Whether there is capacity is not checked.

    Raises
    ------
    InputError
        One line on what is missing and in which markets, and the fix.
    MarketUnreachable
        If the market does not answer.
    """
    check_listing(spec.job_id)
    market = Market(spec.reliable.instance_type, spec.reliable.zone)
    if fault := _fault(lambda: _request(spec, market, Tier.RELIABLE)):
        raise InputError(f"{market} could not be bought on demand: {fault}")
    if not spec.transient.max_vcpus:
        return
    markets = [Market.parse(text) for text in spec.transient.markets]
    check_spot_markets(markets, lambda market: _request(spec, market, Tier.TRANSIENT))


def check_listing(job_id: str) -> None:
    """Raise `InputError` if the market permanently refuses to list the machines of a job or sweep."""
    try:
        job_machines(job_id)
    except (AccessRefused, BadRequest) as error:
        raise InputError(f"the market refuses to list machines: {_line(error)}") from None


def check_spot_markets(markets: Sequence[Market], request: Callable[[Market], LaunchRequest]) -> None:
    """Have the market check a purchase of a spot machine in some of `markets`; raise `InputError` for refusals."""
    faults: dict[str, list[str]] = {}
    for market in markets_to_try(markets):
        if fault := _fault(lambda market=market: request(market)):  # type: ignore[misc]
            faults.setdefault(fault, []).append(str(market))
    if faults:
        lines = (
            f"{', '.join(names)} could not be bought as a spot machine: {fault}" for fault, names in faults.items()
        )
        raise InputError("; ".join(lines))


def markets_to_try(markets: Sequence[Market]) -> list[Market]:
    """Return at most `MOST_TRIED` of `markets`: one of each zone, then one of each type that is not among them.

    The network differs by zone, the image by type, and a policy may permit some of both.
    """
    tried: list[Market] = []
    for zone in dict.fromkeys(market.zone for market in markets):
        in_zone = [market for market in markets if market.zone == zone]
        types = {market.instance_type for market in tried}
        tried.append(next((market for market in in_zone if market.instance_type not in types), in_zone[0]))
    for market in markets:
        if market.instance_type not in {other.instance_type for other in tried}:
            tried.append(market)
    return tried[:MOST_TRIED]


def _request(spec: JobSpec, market: Market, tier: Tier) -> LaunchRequest:
    bid_micros = None if tier is Tier.RELIABLE else DRY_BID
    return launch_request(spec.job_id, "dry-run", market, 1, tier, token="dry-run", bid_micros=bid_micros)


def _fault(request: Callable[[], LaunchRequest]) -> str:
    """Return what the market would refuse a purchase for, and the fix; empty if it would not."""
    try:
        current_runtime().market.dry_run(request())
    except MarketError as error:
        if error.failure not in (Failure.AUTH, Failure.CONFIGURATION):
            return ""  # nothing is known against the job; its purchases wait where the market cannot sell
        return _line(error)
    return ""


def _line(error: MarketError) -> str:
    return "; ".join(refusal_and_fix(error))


def refusal_and_fix(error: MarketError) -> tuple[str, str]:
    """Return what the market refuses, and the fix."""
    action = _ACTION.search(error.message)
    if action is not None:
        lacks = f"{error.code}: the credentials lack {action[1]}{action[2] or ''}"
        return lacks, "add it to their policy (docs/aws.md)"
    refusal = f"{error.code}: {error.message}"
    if error.code == "RequestExpired":
        return refusal, "set the clock of this machine"
    if error.failure is Failure.AUTH:
        return refusal, "renew or fix the credentials (docs/aws.md)"
    return refusal, "fix the setting (docs/aws.md)"
