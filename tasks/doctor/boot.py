"""A machine of the image that is bought, joins its own controller and is ended: what no other check can know."""

import secrets
from collections.abc import Callable

from proteus_spot.bidding.market.model import HOUR_S, Tier
from proteus_spot.bidding.market.money import Micros, usd
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes.controller_client import (
    NO_LOSSES,
    ControllerClient,
    ControllerUnreachable,
    OtherVersion,
    wait_rendezvous,
)
from proteus_spot.infra.storage.leases import FIRST_S
from proteus_spot.infra.tls.certificates import ensure_keys
from proteus_spot.tasks.doctor.setup import Setup, Wrong
from proteus_spot.tasks.market.purchases.requests import launch_request
from proteus_spot.tasks.task_runtime import current_runtime

_LOOK_S = 0.5
_CALL_S = 5.0
#: Real seconds to wait for the end of the machine.
_END_S = 300.0


def highest_cost(setup: Setup) -> Micros:
    """Return what the machine costs at most: its first lease at the on-demand price, after which it ends by itself."""
    market = setup.reliable
    kind = setup.type_of(market)
    if kind is None:
        raise InputError(f"{market}: the catalogue has no on-demand price; run `proteus catalog fetch`")
    return -(-kind.on_demand_micros * int(FIRST_S) // HOUR_S)


def boot(setup: Setup, budget: Micros, tell: Callable[[str], None]) -> str:
    """Buy one machine on demand, wait until a node has joined the controller on it, and end it.

    Parameters
    ----------
    budget : the most that may be spent; nothing is bought if the machine may cost more.
    tell : receives a line for each step.
    """
    if (most := highest_cost(setup)) > budget:
        raise InputError(f"--budget {budget / 1e6:g}: the machine may cost {usd(most)}; give at least that")
    job_id = f"doctor-{secrets.token_hex(4)}"
    try:
        market = current_runtime().pinned_market()
        ensure_keys(current_runtime().blobs, job_id, setup.settings)
        order_id = f"{job_id}-boot"
        (fact,) = market.launch(
            launch_request(job_id, order_id, setup.reliable, 1, Tier.RELIABLE, token=order_id, controller=True)
        )
    except MarketError as error:
        raise Wrong(f"{setup.reliable} was not sold: {error}", "try again, or another type in the job file") from None
    tell(f"bought {fact.instance_id} ({setup.reliable}) on demand; waiting until it joins")
    began_s = SystemClock().now_s()
    try:
        _await_node(setup, job_id, fact.instance_id)
        took_s = SystemClock().now_s() - began_s
    finally:
        market.terminate([fact.instance_id])
        tell(f"ending {fact.instance_id}")
        _await_end(fact.instance_id)
    for name in current_runtime().blobs.list(f"jobs/{job_id}"):
        current_runtime().blobs.remove(name)
    return f"{fact.instance_id} joined after {took_s:.0f} s, and has ended"


def _await_node(setup: Setup, job_id: str, instance_id: str) -> None:
    clock, settings = SystemClock(), setup.settings
    until_s = clock.now_s() + settings.join_minutes * 60
    late = Wrong(
        f"{instance_id} did not join within {settings.join_minutes:g} minutes",
        f"read its console output in EC2 and jobs/{job_id}/logs in the bucket: the image lacks this program "
        "(PROTEUS_NODE_PYTHON), the node lacks rights, or this machine cannot reach the node",
    )
    try:
        address = wait_rendezvous(
            settings.blob_url, job_id, settings.join_minutes * 60, lambda meeting: meeting.get("name") == instance_id
        )
        while not ControllerClient(address, _CALL_S).status(NO_LOSSES)["nodes"]:
            if clock.now_s() > until_s:
                raise late
            clock.wait_until(clock.now_s() + _LOOK_S)
    except ControllerUnreachable:
        raise late from None
    except OtherVersion as error:
        raise Wrong(str(error), "make the image again with this version") from None


def _await_end(instance_id: str) -> None:
    clock, market = SystemClock(), current_runtime().market
    until_s = clock.now_s() + _END_S
    while any(fact.alive for fact in market.describe(instance_ids=[instance_id])):
        if clock.now_s() > until_s:
            raise Wrong(f"{instance_id} is still alive", "end it in the console of EC2, or by `proteus panic`")
        clock.wait_until(clock.now_s() + _LOOK_S)
