"""What the core needs of the world, as Protocols. infra/ implements them; one contract suite holds for all.

Errors are part of the contract, so they stand here too.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from bidding.market.model import InstanceFact, LaunchRequest, Market, PricePoint


class MarketError(Exception):
    """Something the market said. `code` is EC2's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class LaunchRefused(MarketError):
    """The market will not sell this now (price above the bid, no capacity, quota); nothing was bought.

    Being asked too often is no refusal: it is `MarketUnreachable`.
    """


class TokenMismatch(MarketError):
    """The token was used before for another purchase; nothing was bought."""


class BadRequest(MarketError):
    """The request itself is wrong (unknown type, bad bid); repeating it is useless."""


class MarketUnreachable(MarketError):
    """Nobody answered, after the retries; whether the request took effect is not known."""


class SpotMarket(Protocol):
    """A market for machines: the real EC2, the simulated one behind its endpoint, or the simulated one itself."""

    def launch(self, request: LaunchRequest) -> list[InstanceFact]:
        """Buy `request.count` instances, all or none.

        The same token with the same parameters returns the same instances, whatever has become of them.

        Raises
        ------
        LaunchRefused, TokenMismatch, BadRequest, MarketUnreachable
        """
        ...

    def describe(self, tags: "Iterable[tuple[str, str]]" = ()) -> list[InstanceFact]:
        """Return every instance that carries all of `tags`, ended ones too as long as the market remembers them.

        Raises
        ------
        MarketUnreachable
            Also where the market tells of an instance, but not yet of the bid that bought it (`IncompleteAnswer`).
        """
        ...

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Let instances go; those that ended already, or are unknown, are no error."""
        ...

    def price_history(self, markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        """Return the price changes in [from_s, until_s], oldest first, with the one that held at `from_s` before them."""
        ...

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """Return when any market's price was told last, in (after_s, until_s]; None where none was.

        A price told again unchanged counts: the question is whether prices come in at all.
        """
        ...
