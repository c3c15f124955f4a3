"""A spot market under test, with its simulation and its clock."""

from dataclasses import dataclass

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.market.spot_market import SpotMarket
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.market_servers import T0, A, ManualClock


@dataclass
class MarketCase:
    market: SpotMarket
    sim: SimSpotMarket
    clock: ManualClock

    def at(self, seconds: float) -> None:
        """Move time to this number of seconds after the start of the traces."""
        self.clock.at_s = T0 + seconds

    def only(self):
        (fact,) = self.market.describe()
        return fact


#: Seconds after T0 at which no spot machines of A are available.
DOWN_AT = range(60_000, 60_600)
SCARCE = {A: capacity_trace([1] * 100 + [0] + [1] * 100, 600, T0)}
