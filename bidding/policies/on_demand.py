"""Policy `on-demand`: no bids, the reliable tier does all the work; the baseline of the others."""

from proteus_spot.bidding.market.model import Allocation
from proteus_spot.bidding.policies.base import Choice, Decision, MarketView


class OnDemandPolicy:
    """Buys nothing on the spot market."""

    def acquisition(self, view: MarketView) -> Decision:
        """Return WAIT."""
        return Decision(Choice.WAIT, "the policy buys no spot machines", float("inf"))

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return LAPSE."""
        return Decision(Choice.LAPSE, "the policy holds no spot machines", float("inf"))
