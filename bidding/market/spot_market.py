"""Protocol of a market for machines, implemented in infra/ and checked by one contract suite.

Errors are part of the contract and defined here, too.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from bidding.market.model import InstanceFact, LaunchRequest, Market, PricePoint


class MarketError(Exception):
    """Error of the market; `code` is EC2's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class LaunchRefused(MarketError):
    """The market will not sell this now (price above the bid, no capacity, quota); nothing was bought.

    Throttling is no refusal: it is `MarketUnreachable`.
    """


class TokenMismatch(MarketError):
    """The token was used before for another purchase; nothing was bought."""


class BadRequest(MarketError):
    """The request itself is wrong (unknown type, bad bid); repeating it is useless."""


class MarketUnreachable(MarketError):
    """The market did not answer, after the retries; whether the request took effect is not known."""


class SpotMarket(Protocol):
    """A market for machines: the real EC2, the simulated one behind its endpoint, or the simulated one itself."""

    def launch(self, request: LaunchRequest) -> list[InstanceFact]:
        """Buy `request.count` instances, all or none.

        The same token with the same parameters returns the same instances, whatever their state.

        Raises
        ------
        LaunchRefused, TokenMismatch, BadRequest, MarketUnreachable
        """
        ...

    def describe(self, tags: "Iterable[tuple[str, str]]" = ()) -> list[InstanceFact]:
        """Return every instance that has all of `tags`, ended ones too as long as the market lists them.

        Raises
        ------
        MarketUnreachable
            Also if the market lists an instance, but not yet the bid that bought it (`IncompleteAnswer`).
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
