"""Journal entries for tests of the state database."""

from proteus_spot.bidding.market.model import Allocation, Market, Tier
from proteus_spot.infra.state.records import Entry

SPEC = {"training": {"app": "mlr"}, "markets": ["c4.large/us-east-1a"]}


HELD = Allocation("a-1", Market("c4.large", "us-east-1a"), 2, 1000, Tier.TRANSIENT, 50_000)


def entries(*names: str) -> list[Entry]:
    """Entries of a journal, one of each kind that is named."""
    return [Entry("event", 1.0, 2.0, {"kind": name, "schema": 1}) for name in names]
