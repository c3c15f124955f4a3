"""The simulated market as one account sees it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proteus_spot.bidding.market.model import InstanceFact, LaunchRequest, Market, PricePoint
from proteus_spot.infra.simulated_ec2.held_instances import LaunchOptions
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket


@dataclass(frozen=True, slots=True)
class AccountMarket:
    """A simulated market as one account sees it: it implements `SpotMarket`."""

    market: SimSpotMarket
    account: str

    def account_id(self) -> str:
        """See `SpotMarket.account_id`."""
        self.market.enter("account")
        return self.account

    def freeze(self, request: LaunchRequest) -> LaunchRequest:
        """See `SpotMarket.freeze`."""
        return self.market.freeze(request)

    def dry_run(self, request: LaunchRequest) -> None:
        """See `SpotMarket.dry_run`."""
        self.market.dry_run(request)

    def launch(self, request: LaunchRequest) -> list[InstanceFact]:
        """See `SpotMarket.launch`."""
        return self.market.launch(request, LaunchOptions(self.account))

    def describe(
        self, tags: Iterable[tuple[str, str]] = (), instance_ids: Collection[str] = (), tokens: Collection[str] = ()
    ) -> list[InstanceFact]:
        """See `SpotMarket.describe`: instances of other accounts are never listed."""
        return self.market.describe(tags, instance_ids, tokens, self.account)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """See `SpotMarket.terminate`: instances of other accounts are unknown."""
        self.market.terminate(instance_ids, self.account)

    def price_history(self, markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        """See `SpotMarket.price_history`."""
        return self.market.price_history(markets, from_s, until_s)

    def newest_price_s(self, after_s: int, until_s: int) -> int | None:
        """See `SpotMarket.newest_price_s`."""
        return self.market.newest_price_s(after_s, until_s)

    def placement_scores(self, types: Sequence[str], count: int) -> Mapping[str, int]:
        """See `SpotMarket.placement_scores`."""
        return self.market.placement_scores(types, count)

    def quotas(self) -> Mapping[str, int]:
        """See `SpotMarket.quotas`."""
        return self.market.quotas()
