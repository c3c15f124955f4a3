"""The market's immutable values: markets, instance types, allocations, purchases, instances, price points.

Times are whole seconds since the Unix epoch in market time (`_s`), money is micro-dollars (`_micros`); prices are
hourly. No decisions are made here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proteus_spot.bidding.market.money import Micros

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 24 * HOUR_S

#: Tag of every instance of ours: the order that bought it.
ORDER_TAG = "proteus:order"
#: Tags of every machine of ours: its owner and its job.
OWNER_TAG, JOB_TAG = "proteus:owner", "proteus:job"


@dataclass(frozen=True, order=True, slots=True)
class Market:
    """An instance type in a zone, which has a price. Written ``type/zone``."""

    instance_type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.instance_type}/{self.zone}"

    @classmethod
    def parse(cls, text: str) -> "Market":
        """Return the market written as ``type/zone``; `ValueError` where it is not of that form."""
        instance_type, slash, zone = text.partition("/")
        if not (slash and instance_type and zone) or "/" in zone:
            raise ValueError(f"not a market: {text!r} (want TYPE/ZONE, as in c4.large/us-east-1a)")
        return cls(instance_type, zone)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """Size of a machine of this type, and its on-demand price on the day requested."""

    name: str
    vcpu: int
    memory_gib: float
    on_demand_micros: Micros
    gpus: int = 0


class Tier(StrEnum):
    """Reliability of a machine."""

    RELIABLE = "reliable"
    TRANSIENT = "transient"


class EndCause(StrEnum):
    """Why an instance ended."""

    USER = "user"  # we let it go
    EVICTED = "evicted"  # the market took it
    FAILED = "failed"  # the launch failed after the market had accepted it: it never ran, and costs nothing


@dataclass(frozen=True, slots=True)
class Allocation:
    """Instances acquired together under one bid (one price for on-demand ones, whose bid is None)."""

    allocation_id: str
    market: Market
    count: int
    launched_at_s: int
    tier: Tier = Tier.TRANSIENT
    bid_micros: Micros | None = None

    def hour_index(self, now_s: int) -> int:
        """Return how many whole billing hours have passed at `now_s`; 0 before the launch, where clocks differ."""
        return max((now_s - self.launched_at_s) // HOUR_S, 0)

    def hour_ends_at_s(self, now_s: int) -> int:
        """Return the end of the billing hour that `now_s` lies in; at a boundary that of the hour that begins."""
        return self.launched_at_s + (self.hour_index(now_s) + 1) * HOUR_S


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One purchase: all `count` instances or none, under a token that makes repeating it harmless.

    `bid_micros` None asks for on-demand machines. Under `no_limit` no maximum price is sent, and `bid_micros` is the
    on-demand price, which is EC2's limit then. `at_least` is a smaller number of machines that is accepted, too; None:
    all or none. `parameters` is the request as the market's API takes it; None: it is
    made of the rest and the settings when it is sent. `SpotMarket.freeze` makes it.
    """

    token: str
    market: Market
    count: int
    bid_micros: Micros | None
    user_data: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] | None = None
    at_least: int | None = None
    no_limit: bool = False


class InstanceState(StrEnum):
    """State of an instance, as EC2's, as far as the states are distinguished here.

    A stopped instance does not run, and its hours are not charged. But it is not gone: its disk is paid, and a user
    may start it again.
    """

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class InstanceFact:
    """The market's present report of one instance.

    `ended_at_s` and `end_cause` are None while it lives; `end_reason` is the market's code of the reason. `notice_at_s`
    is the time at which a marked instance will be taken, None where none was given. An instance that is not `complete`
    is a young spot machine whose bid and notice the market does not report yet: `bid_micros` and `notice_at_s` are None
    then. It is certain that it lives or has ended, and which order bought it, but not what it costs.
    """

    instance_id: str
    market: Market
    state: InstanceState
    launched_at_s: int
    bid_micros: Micros | None
    token: str
    tags: Mapping[str, str]
    address: str = ""
    notice_at_s: int | None = None
    ended_at_s: int | None = None
    end_cause: EndCause | None = None
    end_reason: str = ""
    complete: bool = True

    @property
    def order_id(self) -> str:
        """The order that bought the instance, by its tag; empty for an instance that no order of ours bought."""
        return self.tags.get(ORDER_TAG, "")

    @property
    def alive(self) -> bool:
        """Whether the instance is still held (and may still be charged)."""
        return self.state in (InstanceState.PENDING, InstanceState.RUNNING)


@dataclass(frozen=True, slots=True)
class PricePoint:
    """The price of a market from `at_s` until its next point; `source` and `observed_at_s` give its origin."""

    market: Market
    at_s: int
    price_micros: Micros
