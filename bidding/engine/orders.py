"""Orders, the engine's output. An order's id depends only on the job and its past, so repeating it is harmless.

An id is that of the job, the generation of the state database (nothing for the first one) and a name with a number:
``job-buy-14``, ``job-g2-3fa94c02-buy-14``. Databases that were copied go on with the same numbers, and differ in their
generation.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.policies.base import Decision

#: Begins the name of a purchase of spot machines.
PURCHASE = "buy-"
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


def order_id_of(job_id: str, generation: str, name: str) -> str:
    """Return the id of an order of a job, ordered in a generation of its database; '' is the first one."""
    return f"{job_id}-{generation}-{name}" if generation else f"{job_id}-{name}"


def order_parts(job_id: str, order_id: str) -> tuple[str, str]:
    """Return the generation and the name that an order of a job has in its id; two empty texts for one of no job."""
    found = re.fullmatch(rf"{re.escape(job_id)}-(?:(g[0-9]+-[0-9a-f]+)-)?(.+)", order_id)
    return (found[1] or "", found[2]) if found else ("", "")


def number_after(job_id: str, order_id: str, prefix: str) -> int:
    """Return the first number after that of an order whose name is `prefix` and a number; 0 if it is of no such form.

    Numbers of other generations count, too.
    """
    _, name = order_parts(job_id, order_id)
    number = name.removeprefix(prefix)
    return int(number) + 1 if name.startswith(prefix) and number.isascii() and number.isdecimal() else 0


def client_token(owner: str, order_id: str) -> str:
    """Return the client token of an order: the same in every process, another one for every owner."""
    return sha256(f"{owner}\n{order_id}".encode()).hexdigest()[:_TOKEN_LENGTH]
