"""Orders, the engine's output. An order's id depends only on the job and its past, so repeating it is harmless."""

from dataclasses import dataclass
from hashlib import sha256

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.policies.base import Decision

#: Characters of a client token; EC2 takes 64.
_TOKEN_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Acquire:
    """Buy `count` instances under `bid_micros`, or on demand if that is None."""

    order_id: str
    market: Market
    count: int
    bid_micros: Micros | None
    decision: Decision


@dataclass(frozen=True, slots=True)
class Renew:
    """Keep the allocation for billing hour `hour` (0 is its first)."""

    allocation_id: str
    hour: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Lapse:
    """End the allocation before billing hour `hour` begins at `before_s`, or only its machines `instance_ids`."""

    allocation_id: str
    hour: int
    before_s: int
    decision: Decision
    instance_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Buy nothing this time."""

    decision: Decision


Order = Acquire | Renew | Lapse | Wait


def number_after(order_id: str, prefix: str) -> int:
    """Return the first number after that of an order whose id is `prefix` and a number; 0 if it is of no such form."""
    number = order_id.removeprefix(prefix)
    return int(number) + 1 if order_id.startswith(prefix) and number.isascii() and number.isdecimal() else 0


def client_token(owner: str, order_id: str) -> str:
    """Return the client token of an order: the same in every process, another one for every owner."""
    return sha256(f"{owner}\n{order_id}".encode()).hexdigest()[:_TOKEN_LENGTH]
