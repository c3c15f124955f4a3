"""`EventQueue` of a simulated market, in this process: what EventBridge would bring of its spot machines.

*Differs*: an event is there at once and can be received again at once; none gets lost or too old.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count

from proteus_spot.bidding.market.machine_events import MachineEvent
from proteus_spot.infra.ec2.event_messages import REBALANCE, SPOT_WARNING, read_messages
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket


class SimEvents:
    """The events of the machines of `market`, and what is sent by `send`."""

    def __init__(self, market: SimSpotMarket) -> None:
        self._market = market
        self._numbers = count()
        self._bodies: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    def send(self, body: str) -> None:
        """Put a message into the queue."""
        self._bodies[str(next(self._numbers))] = body

    def receive(self) -> list[MachineEvent]:
        """Return the events that are there now; see `EventQueue.receive`."""
        for fact in self._market.log():
            name = fact.instance_id
            times = {REBALANCE: self._market.rebalance_at_s(name), SPOT_WARNING: self._market.marked_at_s(name)}
            for kind, at_s in times.items():
                if at_s is not None and (name, kind) not in self._told:
                    self._told.add((name, kind))
                    self.send(event_message(kind, name, at_s))
        events, bad = read_messages(self._bodies.items())
        self._remove(bad)
        return events

    def remove(self, events: Sequence[MachineEvent]) -> None:
        """Remove events that were received; see `EventQueue.remove`."""
        self._remove([event.receipt for event in events])

    def _remove(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            self._bodies.pop(receipt, None)


def event_message(kind: str, instance_id: str, at_s: int, **detail: str) -> str:
    """Return the message of EventBridge of a kind, sent at `at_s`, about an instance."""
    return json.dumps(
        {
            "version": "0",
            "detail-type": kind,
            "source": "aws.ec2",
            "time": f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "detail": {"instance-id": instance_id, **detail},
        }
    )
