"""Checks of the account in the cloud: credentials, rights, limits, network, image."""

from collections.abc import Iterable, Mapping
from typing import Any

from proteus_spot.bidding.economics.job_model import size_in
from proteus_spot.bidding.market.model import OWNER_TAG, LaunchRequest, Market
from proteus_spot.bidding.market.quotas import Quota, quota_of
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.errors import ProteusError
from proteus_spot.tasks.doctor.setup import Setup, Wrong
from proteus_spot.tasks.market.purchases.dry_run import DRY_BID, markets_to_try, refusal_and_fix

#: All TCP ports.
_PORTS = (0, 65535)
_ANYWHERE = ("0.0.0.0/0", "::/0")


def check_credentials(setup: Setup) -> str:
    """Check that AWS knows the credentials."""
    try:
        caller = setup.account.caller()
    except ProteusError as error:
        raise Wrong(str(error), "log in (`aws configure`, `aws sso login`), or give this machine a role") from None
    return f"{caller.arn}, account {caller.account}"


def check_permissions(setup: Setup) -> str:
    """Check by dry runs that the worker's calls are allowed: purchases on demand and spot, look-up, end."""
    if missing := setup.account.missing_actions():
        raise Wrong(f"the credentials lack {', '.join(missing)}", "add them to their policy (docs/aws.md)")
    requests = [_request(setup.reliable, None)]
    requests += [_request(market, DRY_BID) for market in markets_to_try(list(setup.spot_markets))]
    for request in requests:
        try:
            setup.market.dry_run(request)
        except MarketError as error:
            what, fix = refusal_and_fix(error)
            raise Wrong(f"{request.market}: {what}", fix) from None
    return f"{len(requests)} purchases and the other calls of the worker would be allowed"


def _request(market: Market, bid_micros: int | None) -> LaunchRequest:
    return LaunchRequest("doctor", market, 1, bid_micros, "", {OWNER_TAG: "doctor"})


def check_spot_role(setup: Setup) -> str:
    """Check that the account has the service-linked role of EC2 spot."""
    if not setup.account.has_spot_role():
        raise Wrong(
            "the account has no service-linked role of EC2 spot",
            "run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
        )
    return "is there"


def check_on_demand_quota(setup: Setup) -> str:
    """Check that the on-demand quota has room for the reliable tier."""
    count = 1 if setup.job is None else setup.job.reliable.count
    return _check_quotas(setup, {setup.reliable: count * _vcpus(setup, setup.reliable)}, spot=False, gpu=False)


def check_spot_quota(setup: Setup) -> str:
    """Check that the spot quota has room for the most that the job holds."""
    return _check_quotas(setup, _spot_vcpus(setup), spot=True, gpu=False)


def check_gpu_quota(setup: Setup) -> str:
    """Check the quotas of GPU machines: they have their own, which are 0 in a new account."""
    wanted = {setup.reliable: _vcpus(setup, setup.reliable)} if setup.job is not None else {}
    told = [
        _check_quotas(setup, part, spot=spot, gpu=True) for part, spot in ((wanted, False), (_spot_vcpus(setup), True))
    ]
    return "; ".join(dict.fromkeys(told))


def _spot_vcpus(setup: Setup) -> dict[Market, int]:
    return {market: _most_vcpus(setup, market) for market in setup.spot_markets}


def _most_vcpus(setup: Setup, market: Market) -> int:
    """Return the most vCPUs that the job holds in a market; of one machine without a job."""
    vcpus, kind = _vcpus(setup, market), setup.type_of(market)
    if setup.job is None:
        return vcpus
    tier = setup.job.transient
    size = vcpus if kind is None else size_in(tier.unit, kind)
    return tier.max_vcpus if tier.unit == "vcpu" else tier.max_vcpus // max(size, 1) * vcpus


def _check_quotas(setup: Setup, wanted: Mapping[Market, int], *, spot: bool, gpu: bool) -> str:
    """Hold what is wanted of each market to the quota of its class."""
    needed: dict[Quota, int] = {}
    for market, vcpus in wanted.items():
        quota = quota_of(market.instance_type, spot)
        if quota is not None and _is_of_gpus(quota) is gpu:
            needed[quota] = max(needed.get(quota, 0), vcpus)
    told = []
    for quota, vcpus in needed.items():
        allowed = setup.account.quota(quota)
        if allowed < vcpus:
            raise Wrong(
                f"{quota.name}: {allowed} vCPUs are allowed and {vcpus} needed",
                f"ask for more in Service Quotas ({quota.code}), or lower the job's machines",
            )
        told.append(f"{allowed} vCPUs, {vcpus} needed")
    return "; ".join(told) or "none needed"


def _is_of_gpus(quota: Quota) -> bool:
    return bool({"g", "p"} & set(quota.families))


def _vcpus(setup: Setup, market: Market) -> int:
    kind = setup.type_of(market)
    return 1 if kind is None else kind.vcpu


def check_subnets(setup: Setup) -> str:
    """Check that the subnets exist, each in the zone that it is set for."""
    wanted = setup.settings.subnet_ids
    if not wanted:
        return "none is set: the default one of each zone"
    found = setup.account.subnets(wanted.values())
    for zone, name in wanted.items():
        if name not in found:
            raise Wrong(f"{name} (zone {zone}) does not exist", "fix PROTEUS_SUBNET_IDS")
        if (theirs := found[name]["AvailabilityZone"]) != zone:
            raise Wrong(f"{name} lies in {theirs}, not in {zone}", "fix PROTEUS_SUBNET_IDS")
    if len({row["VpcId"] for row in found.values()}) > 1:
        raise Wrong("the subnets are of several VPCs", "name subnets of one VPC in PROTEUS_SUBNET_IDS")
    markets = [setup.reliable, *setup.spot_markets]
    if lacking := sorted({market.zone for market in markets} - set(wanted)):
        raise Wrong(f"none is set for {', '.join(lacking)}", "add it to PROTEUS_SUBNET_IDS")
    return f"{len(found)} in {found[next(iter(wanted.values()))]['VpcId']}"


def check_security_groups(setup: Setup) -> str:
    """Check that nodes reach each other on all TCP ports, and that the internet does not reach them."""
    wanted, fix = setup.settings.security_group_ids, "fix PROTEUS_SECURITY_GROUP_IDS"
    if not wanted:
        return "none is set: the default one of the VPC"
    found = setup.account.security_groups(wanted)
    if missing := [name for name in wanted if name not in found]:
        raise Wrong(f"{', '.join(missing)} does not exist", fix)
    vpcs = {row["VpcId"] for row in found.values()}
    if setup.settings.subnet_ids:
        vpcs |= {row["VpcId"] for row in setup.account.subnets(setup.settings.subnet_ids.values()).values()}
    if len(vpcs) > 1:
        raise Wrong(f"groups and subnets are of several VPCs: {', '.join(sorted(vpcs))}", fix)
    rules = [rule for row in found.values() for rule in row["IpPermissions"]]
    if any(span in _ANYWHERE for rule in rules for span in _spans(rule)):
        raise Wrong(
            "any machine on the internet may open connections", "remove the rule for 0.0.0.0/0 (docs/security.md)"
        )
    if not any(_opens_all(rule, wanted) for rule in rules):
        raise Wrong(
            "nodes do not reach each other on every TCP port",
            f"add an ingress rule of all TCP ports from {wanted[0]} itself",
        )
    return f"{', '.join(wanted)}: members reach each other, the internet does not"


def _spans(rule: Mapping[str, Any]) -> Iterable[str]:
    yield from (row["CidrIp"] for row in rule.get("IpRanges", ()))
    yield from (row["CidrIpv6"] for row in rule.get("Ipv6Ranges", ()))


def _opens_all(rule: Mapping[str, Any], groups: Iterable[str]) -> bool:
    """Return whether a rule opens every TCP port to members of `groups`."""
    ports = (rule.get("FromPort"), rule.get("ToPort"))
    everything = rule["IpProtocol"] == "-1" or (rule["IpProtocol"] == "tcp" and ports == _PORTS)
    return everything and any(row.get("GroupId") in groups for row in rule.get("UserIdGroupPairs", ()))


def check_image(setup: Setup) -> str:
    """Check that the image exists and can be booted."""
    name, fix = setup.settings.image_id, "set PROTEUS_IMAGE_ID to the image that you made (docs/aws.md)"
    image = setup.account.image(name)
    if image is None:
        raise Wrong(f"{name} does not exist in {setup.settings.region}", fix)
    if image.get("State") != "available":
        raise Wrong(f"{name} is {image.get('State')}", "wait until it is available, or name another")
    if image.get("RootDeviceType") != "ebs":
        raise Wrong(f"{name} has no EBS root volume", fix)
    return f"{name} is available ({image.get('Architecture', '?')})"
