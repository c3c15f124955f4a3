"""The instance metadata service of the simulated machines: IMDSv2, one path prefix per instance.

*Source*: EC2 user guide, "Use the Instance Metadata Service", "Spot Instance interruption notices" and "EC2 instance
rebalance recommendations".
*Differs*: a machine reaches it under ``<metadata_url>/<instance-id>`` (in AWS_EC2_METADATA_SERVICE_ENDPOINT) instead of
the link-local address; tags are always served (EC2: only if enabled at launch).
"""

import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket

_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "X-aws-ec2-metadata-token"
_LONGEST_TTL_S = 21600


class Metadata:
    """The metadata service of every instance of one endpoint.

    Parameters
    ----------
    market : the simulated market.
    region : name of its region.
    catch_up : called before each answer to bring the market up to date.
    real_s : returns real seconds, for the expiry of tokens.
    """

    def __init__(
        self, market: SimSpotMarket, region: str, catch_up: Callable[[], None], real_s: Callable[[], float]
    ) -> None:
        self._market = market
        self._region = region
        self._catch_up = catch_up
        self._real_s = real_s
        #: Expiry of each (instance, token), on the clock `real_s`.
        self._tokens: dict[tuple[str, str], float] = {}

    def add_routes(self, app: web.Application, prefix: str) -> None:
        """Serve under ``prefix/<instance-id>/latest``."""
        base = prefix + "/{instance}/latest"
        app.router.add_put(base + "/api/token", self._token)
        app.router.add_get(base + "/meta-data/{path:.*}", self._value)

    async def _token(self, request: web.Request) -> web.Response:
        self._fact(request)
        header = request.headers.get(_TTL_HEADER, "")
        if not header.isascii() or not header.isdigit() or not 1 <= int(header) <= _LONGEST_TTL_S:
            raise web.HTTPBadRequest(text=f"{_TTL_HEADER}: want 1 to {_LONGEST_TTL_S} seconds")
        now_s = self._real_s()
        self._tokens = {key: ends_s for key, ends_s in self._tokens.items() if ends_s > now_s}
        token = secrets.token_urlsafe(40)
        self._tokens[request.match_info["instance"], token] = now_s + int(header)
        return web.Response(text=token, headers={_TTL_HEADER: header})

    async def _value(self, request: web.Request) -> web.Response:
        key = (request.match_info["instance"], request.headers.get(_TOKEN_HEADER, ""))
        if self._tokens.get(key, 0.0) <= self._real_s():
            raise web.HTTPUnauthorized
        fact = self._fact(request)
        value = self._lookup(fact, request.match_info["path"].rstrip("/"))
        if value is None:
            raise web.HTTPNotFound
        return web.Response(text=value)

    def _fact(self, request: web.Request) -> InstanceFact:
        self._catch_up()
        try:
            fact = self._market.fact(request.match_info["instance"])
        except KeyError:
            raise web.HTTPNotFound from None
        if not fact.alive:
            raise web.HTTPNotFound
        return fact

    def _lookup(self, fact: InstanceFact, path: str) -> str | None:
        if path == "tags/instance":
            return "\n".join(fact.tags)
        if path.startswith("tags/instance/"):
            return fact.tags.get(path.removeprefix("tags/instance/"))
        taken = (
            "" if fact.notice_at_s is None else f"{datetime.fromtimestamp(fact.notice_at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )
        rebalance_at_s = self._market.rebalance_at_s(fact.instance_id)
        values = {
            "instance-id": fact.instance_id,
            "instance-type": fact.market.instance_type,
            "instance-life-cycle": "on-demand" if fact.bid_micros is None else "spot",
            "local-ipv4": fact.address,
            "local-hostname": "localhost",
            "placement/availability-zone": fact.market.zone,
            "placement/region": self._region,
            "events/recommendations/rebalance": None
            if rebalance_at_s is None
            else json.dumps({"noticeTime": f"{datetime.fromtimestamp(rebalance_at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"}),
            "spot/instance-action": json.dumps({"action": "terminate", "time": taken}) if taken else None,
            "spot/termination-time": taken or None,
        }
        return values.get(path)
