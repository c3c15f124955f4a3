"""Facts of markets in memory."""

from collections.abc import Sequence

from proteus_spot.bidding.facts.records import AdvisorBand, Life, PlacementScore, Rebalance, RequestAnswer
from proteus_spot.bidding.market.model import Market


class KeptFacts:
    """The facts that a test gives; it implements `MarketFacts`."""

    def __init__(
        self,
        answers: Sequence[RequestAnswer] = (),
        lives: Sequence[Life] = (),
        scores: Sequence[PlacementScore] = (),
        bands: Sequence[AdvisorBand] = (),
        rebalances: Sequence[Rebalance] = (),
    ) -> None:
        self._answers, self._lives, self._scores, self._bands = answers, lives, scores, bands
        self._rebalances = rebalances

    def answers(self, markets: Sequence[Market], from_s: int) -> list[RequestAnswer]:
        return [each for each in self._answers if each.market in markets and each.at_s >= from_s]

    def lives(self, markets: Sequence[Market], from_s: int, now_s: int) -> list[Life]:
        return [each for each in self._lives if each.market in markets and from_s < each.until_s <= now_s]

    def scores(self, markets: Sequence[Market], from_s: int) -> list[PlacementScore]:
        return [each for each in self._scores if each.market in markets and each.at_s >= from_s]

    def bands(self, markets: Sequence[Market]) -> list[AdvisorBand]:
        return [each for each in self._bands if each.market in markets]

    def rebalances(self, markets: Sequence[Market], from_s: int) -> list[Rebalance]:
        return [each for each in self._rebalances if each.market in markets and each.at_s >= from_s]
