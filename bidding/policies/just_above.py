"""Policies `just-above` and `fixed-delta`: the cheapest market, at a fixed bid delta."""

from dataclasses import dataclass

from proteus_spot.bidding.market.model import Allocation, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.policies.base import Decision, MarketView
from proteus_spot.bidding.policies.cheapest_market import cheapest, kept


@dataclass(frozen=True, slots=True)
class AbovePolicy:
    """Allocation by allocation, until the cap is reached, of the market that costs least per vCPU at the moment.

    Bids just above the price get many refunds, and many evictions.

    Attributes
    ----------
    delta_micros : bid delta: the bid less the price.

    Notes
    -----
    Source: Proteus (EuroSys 2017), section 6.3, "always bidding just above the market price".
    """

    delta_micros: Micros

    def acquisition(self, view: MarketView) -> Decision:
        """Return the purchase of the cheapest market if the cap leaves one, else WAIT."""
        return cheapest(view, view.left_vcpus, self._bid)

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return RENEW."""
        return kept(view, allocation)

    def _bid(self, view: MarketView, market: Market) -> Micros:
        return view.prices[market] + self.delta_micros
