"""Ask the metadata service whether this machine is about to be taken.

*Source*: EC2 user guide, "Spot Instance interruption notices": ``spot/instance-action`` is 404 until the instance is
marked, then tells action and time; look every few seconds.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from infra.clock import Clock, SystemClock, open_clock
from infra.settings import load_settings

_LINK_LOCAL = "http://169.254.169.254"
_ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_TOKEN_TTL_S = 21600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """The market takes this machine.

    Attributes
    ----------
    action : what EC2 will do: terminate, stop or hibernate.
    at : when (aware, UTC, market time).
    seconds_left : real seconds from the look that found the notice to `at`; below 0 if that is past.
    """

    action: str
    at: datetime
    seconds_left: float


class NoticePoller:
    """Looks for the notice of one machine, over one kept connection.

    Parameters
    ----------
    base_url : the metadata service; None takes AWS_EC2_METADATA_SERVICE_ENDPOINT, else the link-local address.
    clock : market time; None opens the one of the settings.
    timeout_s : real seconds that one look may take.
    """

    def __init__(self, base_url: str | None = None, clock: Clock | None = None, timeout_s: float = 1.0) -> None:
        base_url = base_url or os.environ.get(_ENDPOINT_VARIABLE) or _LINK_LOCAL
        # The metadata service is this machine's own: no proxy lies between.
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + "/latest/", timeout=timeout_s, trust_env=False
        )  # fmt: skip
        self._clock = clock if clock is not None else open_clock(load_settings().clock)
        self._token: str | None = None
        self._complained = False

    @property
    def base_url(self) -> httpx.URL:
        """Where the service is."""
        return self._client.base_url

    async def poll(self) -> Notice | None:
        """Return the notice, or None while there is none.

        A service that does not answer, or answers nonsense, is no notice either; that is logged once until it answers
        again.
        """
        try:
            answer = await self._get("meta-data/spot/instance-action")
            if answer.status_code == httpx.codes.NOT_FOUND:
                self._complained = False
                return None
            answer.raise_for_status()
            told = answer.json()
            at = datetime.fromisoformat(told["time"])
            left_s = (at.timestamp() - self._clock.now_s()) / self._clock.scale
            notice = Notice(str(told["action"]), at, left_s)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            if not self._complained:
                _log.warning("no look for eviction notices at %s: %r", self._client.base_url, error)
                self._complained = True
            return None
        self._complained = False
        return notice

    async def _get(self, path: str) -> httpx.Response:
        if self._token is None:
            self._token = await self._new_token()
        answer = await self._client.get(path, headers={"X-aws-ec2-metadata-token": self._token})
        if answer.status_code == httpx.codes.UNAUTHORIZED:  # the token has expired
            self._token = await self._new_token()
            answer = await self._client.get(path, headers={"X-aws-ec2-metadata-token": self._token})
        return answer

    async def _new_token(self) -> str:
        answer = await self._client.put(
            "api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
        )
        answer.raise_for_status()
        return answer.text

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


def _worth_another_try(error: BaseException) -> bool:
    """Whether the API was away or busy, and did not refuse."""
    busy = isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500
    return busy or isinstance(error, httpx.TransportError)


@retry(
    retry=retry_if_exception(_worth_another_try),
    stop=stop_after_delay(20),
    wait=wait_exponential(multiplier=0.1, max=3),
    reraise=True,
)
def report_notice(events_url: str, about: Mapping[str, Any]) -> None:
    """Tell Prefect that an allocation will be taken; this is what starts `handle-eviction`.

    Parameters
    ----------
    events_url : the Prefect API, as in ``http://host:4200/api``.
    about : job_id, allocation_id, takes_at_s (market time). The same allocation makes the same event, however often it
        is reported.

    Raises
    ------
    httpx.HTTPError
        If the API does not take it; one that is away or busy is asked again for 20 s.
    """
    resource = f"spot.allocation.{about['allocation_id']}"
    event = {
        "id": str(uuid5(NAMESPACE_URL, resource)),
        "occurred": datetime.fromtimestamp(SystemClock().now_s(), UTC).isoformat(),
        "event": "spot.interruption-notice",
        "resource": {"prefect.resource.id": resource, "prefect.resource.name": str(about["allocation_id"])},
        "payload": dict(about),
    }
    httpx.post(f"{events_url.rstrip('/')}/events", json=[event], timeout=10.0).raise_for_status()
