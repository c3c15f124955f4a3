"""Purchases of a job that the market checks without making them, before anything is bought or written."""

import re

from bidding.market.failures import Failure
from bidding.market.model import Market, Tier
from bidding.market.money import to_micros
from bidding.market.spot_market import AccessRefused, BadRequest, MarketError
from infra.errors import InputError
from tasks.job_spec import JobSpec
from tasks.market.instances import job_machines
from tasks.market.purchases.requests import launch_request
from tasks.runtime import current_runtime

#: EC2 names the action that is missing in the message of `UnauthorizedOperation`.
_ACTION = re.compile(r"not authorized to perform: (\S+)( on resource: \S+)?")
#: A bid for which only its form counts.
_BID = to_micros("1")


def check_purchases(spec: JobSpec) -> None:
    """Refuse a job whose purchases the market would refuse for good, and credentials of another account.

    The market checks a machine of the reliable tier and one of the job's first spot market: credentials, permissions,
    image, network and instance profile. Whether there is capacity is not checked.

    Raises
    ------
    InputError
        One line on what is missing, and the mend.
    MarketUnreachable
        If the market does not answer.
    """
    try:
        job_machines(spec.job_id)
    except (AccessRefused, BadRequest) as error:
        raise InputError(f"the market refuses to list machines: {_line(error)}") from None
    market = Market(spec.reliable.instance_type, spec.reliable.zone)
    _check(spec, market, Tier.RELIABLE)
    if spec.transient.max_vcpus:
        _check(spec, Market.parse(spec.transient.markets[0]), Tier.TRANSIENT)


def _check(spec: JobSpec, market: Market, tier: Tier) -> None:
    bid_micros = None if tier is Tier.RELIABLE else _BID
    try:
        request = launch_request(spec, "dry-run", market, 1, tier, token="dry-run", bid_micros=bid_micros)
        current_runtime().market.dry_run(request)
    except MarketError as error:
        if error.failure not in (Failure.AUTH, Failure.CONFIGURATION):
            return  # nothing is known against the job; its purchases wait where the market cannot sell
        what = "on demand" if bid_micros is None else "as a spot machine"
        raise InputError(f"{market} could not be bought {what}: {_line(error)}") from None


def _line(error: MarketError) -> str:
    """Return one line on an error, with the mend."""
    action = _ACTION.search(error.message)
    if action is not None:
        return f"{error.code}: the credentials lack {action[1]}{action[2] or ''}; add it to their policy (docs/aws.md)"
    if error.code == "RequestExpired":
        return f"{error.code}: {error.message}; set the clock of this machine"
    if error.failure is Failure.AUTH:
        return f"{error.code}: {error.message}; renew or mend the credentials (docs/aws.md)"
    return f"{error.code}: {error.message}; mend the setting (docs/aws.md)"
