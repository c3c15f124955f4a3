"""The facts of a market: what was asked and granted, how long machines lived, what the market's owner says of it.

Times are whole seconds of market time. A fact is never changed; how much a fact counts follows from its age.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from proteus_spot.bidding.evictions.fit_capacity import Band
from proteus_spot.bidding.market.model import Market


class Source(StrEnum):
    """Who says so."""

    OWN = "own requests and machines"
    SCORES = "placement scores"
    PRICES = "price history"
    ADVISOR = "advisor"
    TRACES = "availability traces"
    CATALOG = "catalogue"
    METADATA = "instance metadata"
    EVENTS = "events of EC2"
    PRIOR = "prior"


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The answer to a request for spot machines; `code` is the market's, empty where it granted some."""

    at_s: int
    market: Market
    asked: int
    granted: int
    code: str = ""
    source: Source = Source.OWN


@dataclass(frozen=True, slots=True)
class Life:
    """How long a spot machine lived as far as it was seen; `taken` says whether the market ended it.

    `instance_id` is empty where the machine is not known by name.
    """

    market: Market
    launched_at_s: int
    until_s: int
    taken: bool
    source: Source = Source.OWN
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class PlacementScore:
    """EC2's placement score, 1 to 10, of a request for `wanted` machines."""

    at_s: int
    market: Market
    score: int
    wanted: int


@dataclass(frozen=True, slots=True)
class AdvisorBand:
    """The share of the machines of a market that was taken in the month before, as an advisor publishes it."""

    at_s: int
    market: Market
    band: Band


@dataclass(frozen=True, slots=True)
class Rebalance:
    """EC2's recommendation to replace a spot machine: it holds the machine to be at elevated risk of being taken.

    *Source*: EC2 user guide, "EC2 instance rebalance recommendations".
    """

    at_s: int
    market: Market
    instance_id: str
    source: Source = Source.METADATA


class MarketFacts(Protocol):
    """Who keeps the facts of markets; those of all jobs on one database are the same."""

    def answers(self, markets: Sequence[Market], from_s: int) -> Sequence[RequestAnswer]:
        """Return the answers from `from_s` on, oldest first."""
        ...

    def lives(self, markets: Sequence[Market], from_s: int, now_s: int) -> Sequence[Life]:
        """Return the lives of machines that were there after `from_s`, as of `now_s`, oldest first."""
        ...

    def scores(self, markets: Sequence[Market], from_s: int) -> Sequence[PlacementScore]:
        """Return the placement scores from `from_s` on, oldest first."""
        ...

    def bands(self, markets: Sequence[Market]) -> Sequence[AdvisorBand]:
        """Return the newest advisor band of each market that has one."""
        ...

    def rebalances(self, markets: Sequence[Market], from_s: int) -> Sequence[Rebalance]:
        """Return the rebalance recommendations from `from_s` on, oldest first, one of each machine."""
        ...
