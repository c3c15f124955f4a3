"""Protocol of a market for machines, implemented in infra/ and checked by one contract suite.

Errors are part of the contract and defined here, too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from proteus_spot.bidding.market.failures import TOKEN_USED, Failure, failure_of
from proteus_spot.bidding.market.model import InstanceFact, LaunchRequest, Market, PricePoint


class MarketError(Exception):
    """Error of the market; `code` is EC2's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def failure(self) -> Failure:
        """The class of the error, from which follows what becomes of an order."""
        return Failure.UNKNOWN


class LaunchRefused(MarketError):
    """The market will not sell this now (price above the bid, no capacity, quota); nothing was bought.

    Throttling is not a refusal: it is `MarketUnreachable`.
    """

    @property
    def failure(self) -> Failure:
        """Quota or capacity."""
        return Failure.QUOTA if failure_of(self.code) is Failure.QUOTA else Failure.CAPACITY


class AccessRefused(MarketError):
    """The credentials are missing, expired or not allowed this; nothing was done."""

    @property
    def failure(self) -> Failure:
        """The class of the error."""
        return Failure.AUTH


class BadRequest(MarketError):
    """The request itself is wrong (unknown type, bad bid); repeating it is useless."""

    @property
    def failure(self) -> Failure:
        """The class of the error."""
        return Failure.CONFIGURATION


class MarketUnreachable(MarketError):
    """The market did not answer, after the retries; whether the request took effect is not known."""


class TokenMismatch(MarketUnreachable):
    """The token was used before: for another request, or for machines that have ended. This request bought nothing."""


def market_error(code: str, message: str, status: int = 400, launching: bool = False) -> MarketError:
    """Return the error for a code of the market; `status` classes codes that are not known."""
    if launching and code in TOKEN_USED:
        return TokenMismatch(code, message)
    failure = failure_of(code, status)
    if failure in (Failure.CAPACITY, Failure.QUOTA):
        return LaunchRefused(code, message) if launching else BadRequest(code, message)
    kinds = {Failure.AUTH: AccessRefused, Failure.CONFIGURATION: BadRequest, Failure.UNKNOWN: MarketUnreachable}
    return kinds[failure](code, message)


class SpotMarket(Protocol):
    """A market for machines: the real EC2, the simulated one behind its endpoint, or the simulated one itself."""

    def account_id(self) -> str:
        """Return the account that the credentials belong to."""
        ...

    def freeze(self, request: LaunchRequest) -> LaunchRequest:
        """Return `request` with everything that a launch sends (`LaunchRequest.parameters`), settings included.

        A launch of the frozen request sends the same in every process, under other settings and in later versions.

        Raises
        ------
        AccessRefused, BadRequest, MarketUnreachable
            Where something has to be looked up for it.
        """
        ...

    def dry_run(self, request: LaunchRequest) -> None:
        """Have the market check a purchase without making it.

        Raises
        ------
        AccessRefused, BadRequest, MarketUnreachable
            As a launch would. Whether there is capacity is not checked.
        """
        ...

    def launch(self, request: LaunchRequest) -> list[InstanceFact]:
        """Buy `request.count` instances, all or none; with `request.at_least`, as many as there are from that on.

        The same token with the same parameters returns the same instances while they live.

        Raises
        ------
        LaunchRefused
            If the market does not sell this now: nothing was bought.
        AccessRefused, BadRequest
            If the credentials or the request are wrong: nothing was bought by this call.
        MarketUnreachable
            If the outcome is unknown; `TokenMismatch` if the token was used by another request, or all that it bought
            has ended.
        """
        ...

    def describe(
        self, tags: "Iterable[tuple[str, str]]" = (), instance_ids: Collection[str] = (), tokens: Collection[str] = ()
    ) -> list[InstanceFact]:
        """Return every instance that has all of `tags`, ended ones too as long as the market lists them.

        Whatever their tags, those with one of `instance_ids` or `tokens` are among them: tags can be changed and
        removed, and a market may lose them.

        An instance whose bid and eviction notice the market does not report yet is among them, marked by
        `InstanceFact.complete`.

        Raises
        ------
        AccessRefused, BadRequest, MarketUnreachable
        """
        ...

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Terminate instances; those that have ended already, or are unknown, are no error."""
        ...

    def price_history(self, markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        """Return the price changes in [from_s, until_s], oldest first, preceded by the price valid at `from_s`."""
        ...

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """Return the time of the newest price report of any market, in (after_s, until_s]; None if there is none.

        An unchanged price that is reported again counts: the question is whether prices arrive at all.
        """
        ...

    def placement_scores(self, types: Sequence[str], count: int) -> Mapping[str, int]:
        """Return how likely `count` spot machines of any of the types are to be had, 1 to 10, by zone.

        A zone of which the market says nothing is absent.

        Raises
        ------
        AccessRefused, BadRequest, MarketUnreachable
        """
        ...

    def quotas(self) -> Mapping[str, int]:
        """Return the vCPUs that the account may hold, by quota code (`bidding.market.quotas`).

        Raises
        ------
        AccessRefused, BadRequest, MarketUnreachable
        """
        ...
