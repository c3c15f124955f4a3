"""The state of a job in one value: shown by the terminal and at the top of a report."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """One allocation as a reader sees it."""

    market: str
    count: int
    tier: str
    bid: str
    state: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at a moment. `market_s` is seconds since the job was recorded, money is micro-dollars.

    `spent_is_known` is false until the first charge is booked; `buys_nothing` says why no market has a price to decide
    on, if none has, and `unpriced` which hours are booked without a price. `nodes_offered` is the number of nodes that
    the training offers for release.
    """

    job_id: str
    state: str
    market_s: float
    clock: int
    loss: float | None
    nodes_ready: int
    stage: int
    holdings: tuple[Holding, ...]
    spent_micros: int
    refunded_micros: int
    acquisitions: int
    hour_end_decisions: int
    evictions: int
    last_decision: str
    spent_is_known: bool = True
    buys_nothing: str = ""
    unpriced: str = ""
    nodes_offered: int = 0
