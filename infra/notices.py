"""Ask the metadata service whether this machine is about to be taken.

*Source*: EC2 user guide, "Spot Instance interruption notices": ``spot/instance-action`` is 404 until the instance is
marked, then tells action and time; look every few seconds.
"""

import logging
import os
from dataclasses import dataclass
from datetime import datetime

import httpx

from infra.clock import Clock, open_clock
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
