"""Client tokens: what each of them bought, so that a repeated purchase buys nothing.

*Source*: EC2 developer guide, "Ensuring idempotency": a token is the account's; that of a request which names its zone
is valid in that zone, that of another in the region; every parameter must be the same. The answer
`IdempotentInstanceTerminated` exists since January 2025; until then the terminated instances were returned.
"""

from dataclasses import dataclass, field

from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.bidding.market.spot_market import TokenMismatch
from proteus_spot.infra.simulated_ec2.held_instances import HeldInstance, LaunchOptions


@dataclass(frozen=True, slots=True)
class _Purchase:
    """What a token bought, and the request that did."""

    request: LaunchRequest
    options: LaunchOptions
    held: tuple[HeldInstance, ...]


@dataclass(slots=True)
class ClientTokens:
    """The tokens of one region.

    Parameters
    ----------
    memory_s : seconds for which a token is remembered after the end of the last of its instances; None: forever.
    """

    memory_s: int | None
    #: By account, zone (none: the region) and token.
    _purchases: dict[tuple[str, str, str], _Purchase] = field(default_factory=dict)

    def find(self, request: LaunchRequest, options: LaunchOptions, now_s: int) -> tuple[HeldInstance, ...]:
        """Return what the token of this purchase has bought; nothing if it is new, or forgotten.

        Raises
        ------
        TokenMismatch
            ``IdempotentParameterMismatch``, or ``IdempotentInstanceTerminated`` if all of it has ended.
        """
        purchase = self._purchases.get(_key(request, options))
        if purchase is None:
            return ()
        ends = [held.ended_at_s for held in purchase.held if held.ended_at_s is not None]
        all_ended = len(ends) == len(purchase.held)
        if all_ended and self.memory_s is not None and now_s - max(ends) > self.memory_s:
            return ()
        if (purchase.request, purchase.options) != (request, options):
            raise TokenMismatch(
                "IdempotentParameterMismatch",
                f"the client token {request.token!r} was used before with other parameters",
            )
        if all_ended:
            raise TokenMismatch(
                "IdempotentInstanceTerminated",
                "The client token you have provided is associated with a terminated instance. "
                "Please use a different client token.",
            )
        return purchase.held

    def remember(self, held: HeldInstance) -> None:
        """Add an instance to what its token has bought."""
        key = _key(held.request, held.options)
        earlier = self._purchases.get(key)
        together = earlier is not None and (earlier.request, earlier.options, earlier.held[0].launched_at_s) == (
            held.request,
            held.options,
            held.launched_at_s,
        )
        bought = earlier.held if earlier is not None and together else ()
        self._purchases[key] = _Purchase(held.request, held.options, (*bought, held))


def _key(request: LaunchRequest, options: LaunchOptions) -> tuple[str, str, str]:
    return options.account, request.market.zone if options.zonal else "", request.token
