"""A bidding engine, one that replays its journal as it is written, and one that is restored from snapshots."""

import json
from typing import Any

from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.engine.journal import from_record, replay, to_record
from proteus_spot.bidding.engine.orders import Order
from proteus_spot.bidding.engine.snapshot import from_snapshot, to_snapshot


class JournalledEngine:
    """The three engines; after each event they give the same orders, and are in the same state."""

    def __init__(self) -> None:
        self.engine, self._replayed, self._restored = BidEngine(), BidEngine(), BidEngine()
        self.records: list[dict[str, Any]] = []

    def tell(self, told: BidEvent) -> tuple[Order, ...]:
        """Have the engines handle an event; return the orders."""
        orders = self.engine.handle(told)
        records = json.loads(json.dumps([to_record(item) for item in (told, *orders)], allow_nan=False))
        self.records += records
        again, *ordered = map(from_record, records)
        assert self._replayed.handle(again) == tuple(ordered) == orders  # type: ignore[arg-type]
        assert self._restored.handle(again) == orders  # type: ignore[arg-type]
        snapshot = json.loads(json.dumps(to_snapshot(self._restored), allow_nan=False))
        self._restored = from_snapshot(snapshot, self._replayed.holdings.opened)
        states = [vars(engine.holdings) for engine in (self._restored, self._replayed, self.engine)]
        assert states[0] == states[1] == states[2]
        self.engine.validate()
        return orders

    def check_replay(self, probe: BidEvent) -> None:
        """See that the whole journal leads to the same state, and to the same orders of one more event."""
        again = replay(self.records)
        assert vars(again.holdings) == vars(self.engine.holdings)
        assert again.handle(probe) == self.engine.handle(probe)
