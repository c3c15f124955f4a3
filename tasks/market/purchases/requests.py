"""The request of an order: client token, tags, user-data, network; made once, and stored before it is first sent."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from proteus_spot.bidding.economics.job_model import size_in
from proteus_spot.bidding.market.model import JOB_TAG, ORDER_TAG, OWNER_TAG, LaunchRequest, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.ec2.user_data import NodeBoot, user_data
from proteus_spot.infra.state.records import Json
from proteus_spot.tasks.market.eviction_notices import events_url
from proteus_spot.tasks.market.job_opening import type_on_sale
from proteus_spot.tasks.market.listed_machines import TIER_TAG
from proteus_spot.tasks.task_runtime import current_runtime

#: Seconds after which a clean-up of the account may end a machine (its tag `proteus:expires`), unless its job is open.
_EXPIRES_S = 7 * 86_400


def launch_request(
    job_id: str,
    order_id: str,
    market: Market,
    count: int,
    tier: Tier,
    *,
    token: str,
    bid_micros: Micros | None = None,
    controller: bool = False,
    today: bool = False,
    unit: str = "vcpu",
) -> LaunchRequest:
    """Return the request of an order, complete (`SpotMarket.freeze`).

    Parameters
    ----------
    controller : whether it runs there, too.
    today : whether fewer machines are accepted, and no maximum price is sent where it would be the on-demand price.
    unit : what the job's sizes count.
    """
    runtime = current_runtime()
    environment = _environment(order_id)
    if tier is Tier.RELIABLE and (url := events_url()) is not None:
        environment["PROTEUS_EVENTS_URL"] = url  # transient machines send no events to Prefect
    boot = replace(
        _boot(job_id, tier),
        threads=node_threads(market, runtime.clock.scale, unit),
        controller=controller,
        environment=environment,
    )
    name = f"proteus {job_id} {tier}"
    no_limit = today and _is_limit_of_ec2(market, bid_micros)
    return _request(
        boot, order_id, market, count, token, bid_micros, name, at_least=1 if today else None, no_limit=no_limit
    )


def trial_request(
    sweep_id: str, trial: int, order_id: str, market: Market, *, token: str, bid_micros: Micros | None
) -> LaunchRequest:
    """Return the request for the machine of a trial, complete; on demand where `bid_micros` is None."""
    settings = current_runtime().settings
    limits = {"PROTEUS_NOTICE_S": str(settings.notice_s), "PROTEUS_PROGRESS_MINUTES": f"{settings.progress_minutes:g}"}
    boot = replace(
        _boot(sweep_id, Tier.TRANSIENT),
        threads=node_threads(market, current_runtime().clock.scale),
        environment=_environment(order_id) | limits,
        trial=(trial, order_id),
    )
    no_limit = settings.is_aws and _is_limit_of_ec2(market, bid_micros)
    name = f"proteus {sweep_id} trial-{trial:02d}"
    return _request(boot, order_id, market, 1, token, bid_micros, name, no_limit=no_limit)


def _is_limit_of_ec2(market: Market, bid_micros: Micros | None) -> bool:
    """Return whether a bid is the price on demand, which is EC2's limit where none is sent."""
    kind = type_on_sale(market, current_runtime().clock.now_s())
    return bid_micros is not None and kind is not None and bid_micros >= kind.on_demand_micros


def _environment(order_id: str) -> dict[str, str]:
    settings = current_runtime().settings
    environment = {
        "PROTEUS_CLOCK": settings.clock,
        "PROTEUS_REGION": settings.region,
        "PROTEUS_ALLOCATION": order_id,
    }
    if settings.cpu_kernels != "native":
        environment["PROTEUS_CPU_KERNELS"] = settings.cpu_kernels
    if settings.tls != "auto":
        environment["PROTEUS_TLS"] = settings.tls
    if settings.node_host is not None:
        environment["PROTEUS_NODE_HOST"] = settings.node_host
    return environment


def _boot(job_id: str, tier: Tier) -> NodeBoot:
    runtime = current_runtime()
    settings = runtime.settings
    return NodeBoot(
        job_id=job_id,
        blob_url=settings.blob_url,
        tier=tier,
        python=settings.node_python,
        poll_s=settings.poll_s / runtime.clock.scale,
        clock=settings.clock,
        region=settings.region,
    )


def _request(
    boot: NodeBoot,
    order_id: str,
    market: Market,
    count: int,
    token: str,
    bid_micros: Micros | None,
    name: str,
    **more: Any,
) -> LaunchRequest:
    runtime = current_runtime()
    tags: Mapping[str, str] = {
        OWNER_TAG: runtime.owner,
        JOB_TAG: boot.job_id,
        TIER_TAG: str(boot.tier),
        ORDER_TAG: order_id,
        "proteus:expires": str(int(runtime.clock.now_s()) + _EXPIRES_S),
        "Name": name,
    }
    return runtime.market.freeze(LaunchRequest(token, market, count, bid_micros, user_data(boot), tags, **more))


def node_threads(market: Market, scale: float, unit: str = "vcpu") -> int:
    """Return how many tasks a machine runs at a time: its size, or one where many share a real machine."""
    kind = type_on_sale(market, current_runtime().clock.now_s())
    return 1 if scale != 1 or kind is None else max(size_in(unit, kind), 1)


def to_record(request: LaunchRequest) -> dict[str, Any]:
    """Return a request as a JSON object."""
    return {**asdict(request), "market": str(request.market)}


def from_record(record: Json) -> LaunchRequest:
    """Return the request that `to_record` wrote."""
    return LaunchRequest(**{**record, "market": Market.parse(record["market"])})
