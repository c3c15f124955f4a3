"""Poll the metadata service for the eviction notice of this machine, and for a rebalance recommendation.

*Source*: EC2 user guide, "Spot Instance interruption notices": ``spot/instance-action`` is 404 until the instance is
marked, then holds action and time; poll it every few seconds. "EC2 instance rebalance recommendations":
``events/recommendations/rebalance`` is 404 until there is one, then holds its time; it comes before the notice, with
it, or not at all.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

import httpcore  # noqa: F401 - httpx would load it at the first request: in a thread, where that may fail
import httpx
from tenacity import retry, retry_if_exception, stop_after_delay, wait_exponential

from proteus_spot.infra.clock import Clock, SystemClock, open_clock
from proteus_spot.infra.settings import load_settings

_LINK_LOCAL = "http://169.254.169.254"
_ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_TOKEN_TTL_S = 21600
_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Notice:
    """An eviction notice of this machine.

    Attributes
    ----------
    action : what EC2 will do: terminate, stop or hibernate.
    at : time of the eviction (aware, UTC, market time).
    seconds_left : real seconds from the poll that found the notice to `at`; below 0 if that is past.
    """

    action: str
    at: datetime
    seconds_left: float


class NoticePoller:
    """Polls for the notice of one machine, over one persistent connection.

    Parameters
    ----------
    base_url : URL of the metadata service; None takes AWS_EC2_METADATA_SERVICE_ENDPOINT, else the link-local address.
    clock : market time; None opens the one of the settings.
    timeout_s : timeout of one poll, in real seconds.
    """

    def __init__(self, base_url: str | None = None, clock: Clock | None = None, timeout_s: float = 1.0) -> None:
        base_url = base_url or os.environ.get(_ENDPOINT_VARIABLE) or _LINK_LOCAL
        # The metadata service belongs to this machine: no proxy is used.
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + "/latest/", timeout=timeout_s, trust_env=False
        )  # fmt: skip
        self._clock = clock if clock is not None else open_clock(load_settings().clock)
        self._token: str | None = None
        self._has_warned = False

    @property
    def base_url(self) -> httpx.URL:
        """URL of the metadata service."""
        return self._client.base_url

    async def poll(self) -> Notice | None:
        """Return the notice, or None if there is none yet.

        A service that fails or answers invalidly counts as no notice; that is logged once, until it answers again.
        """
        return await self._look("meta-data/spot/instance-action", self._notice)

    async def poll_rebalance(self) -> datetime | None:
        """Return when EC2 recommended to replace this machine, or None if it has not; failures count as for `poll`."""
        return await self._look(
            "meta-data/events/recommendations/rebalance", lambda found: datetime.fromisoformat(found["noticeTime"])
        )

    def _notice(self, found: Mapping[str, Any]) -> Notice:
        at = datetime.fromisoformat(found["time"])
        left_s = (at.timestamp() - self._clock.now_s()) / self._clock.scale
        return Notice(str(found["action"]), at, left_s)

    async def _look(self, path: str, read: Callable[[Any], T]) -> T | None:
        try:
            answer = await self._get(path)
            if answer.status_code == httpx.codes.NOT_FOUND:
                self._has_warned = False
                return None
            answer.raise_for_status()
            found = read(answer.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            if not self._has_warned:
                _log.warning("cannot poll for eviction notices at %s: %r", self._client.base_url, error)
                self._has_warned = True
            return None
        self._has_warned = False
        return found

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


def _is_temporary(error: BaseException) -> bool:
    """Return whether the API was unreachable or had a server error, and did not refuse."""
    is_server_error = isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500
    return is_server_error or isinstance(error, httpx.TransportError)


def notice_event(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that starts `handle-eviction`; its id follows from the machine, so a repetition is the same.

    Parameters
    ----------
    about : job_id, allocation_id, takes_at_s (market time) and, where one machine is taken alone, instance_id.
    """
    resource = f"spot.allocation.{about['allocation_id']}"
    machine = about.get("instance_id") or ""
    return {
        "id": str(uuid5(NAMESPACE_URL, f"{resource}/{machine}" if machine else resource)),
        "event": "spot.interruption-notice",
        "resource": {"prefect.resource.id": resource, "prefect.resource.name": str(about["allocation_id"])},
        "payload": dict(about),
    }


@retry(
    retry=retry_if_exception(_is_temporary),
    stop=stop_after_delay(20),
    wait=wait_exponential(multiplier=0.1, max=3),
    reraise=True,
)
def report_notice(events_url: str, about: Mapping[str, Any]) -> None:
    """Report to Prefect that an allocation will be evicted; the event starts `handle-eviction`.

    Parameters
    ----------
    events_url : the Prefect API, as in ``http://host:4200/api``.
    about : job_id, allocation_id, takes_at_s (market time). Repeated reports of one machine are the same event.

    Raises
    ------
    httpx.HTTPError
        If the API does not accept the event; temporary failures are retried for 20 s.
    """
    event = notice_event(about) | {"occurred": datetime.fromtimestamp(SystemClock().now_s(), UTC).isoformat()}
    httpx.post(f"{events_url.rstrip('/')}/events", json=[event], timeout=10.0).raise_for_status()
