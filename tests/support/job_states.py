"""Job states as left by a run, short or long, with all kinds of events, for tests of the report."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    JobClosed,
    JobOpened,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.journal import to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision
from proteus_spot.infra.state.records import Entry, JobState, LedgerKind, LedgerLine, ObservationKind
from proteus_spot.infra.state.store import Store

START_S = 1_465_948_800
JOB = "job-1"
#: What a page must show as text, whoever wrote it.
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1> \u2028 & 'quotes\""
TYPES = {
    "c4.large": InstanceType("c4.large", 2, 3.75, 105_000),
    "c4.xlarge": InstanceType("c4.xlarge", 4, 7.5, 209_000),
}
MARKETS = tuple(Market(kind, f"us-east-1{zone}") for kind in sorted(TYPES) for zone in "abcd")


def record_job(store: Store, hours: int = 3, seed: int = 0) -> None:
    """Write a finished job of so many market hours, which bought, renewed, was refused, noticed, evicted and let go."""
    with store.transaction() as now:
        _Writer(now, hours, np.random.default_rng(seed)).write()


class _Writer:
    def __init__(self, store: Store, hours: int, rng: np.random.Generator) -> None:
        self._store, self._hours, self._rng = store, hours, rng
        self._seq = 0
        self._end_s = START_S + hours * 3600
        self._bought = 0

    def write(self) -> None:
        spec = {"job_id": JOB, "training": {"app": "mlr", "note": HOSTILE}, "markets": [str(m) for m in MARKETS]}
        self._store.jobs.create_job(JOB, spec, START_S + 0.5)
        self._say(JobOpened(START_S + 1, JOB, JobModel(), "proteus", TYPES, MARKETS, EvictionTable((100,), {})))
        self._grant(START_S + 10, "job-1-reliable-0", MARKETS[0], None)
        for hour in range(self._hours):
            self._pay("job-1-reliable-0", hour, START_S + 10 + hour * 3600, 105_000)
        held: str | None = None
        for number, tick in enumerate(self._ticks()):
            self._say(tick)
            held = self._turn(number, tick, held)
        if held is not None:
            self._close(held)
        self._say(JobClosed(self._end_s))
        self._gone("job-1-reliable-0", self._end_s + 5, EndCause.USER)
        self._progress()
        result = {"clocks": 1000, "accuracy": 0.975, "losses": [[1, 2.0]], "seconds": 1.0}
        self._store.jobs.move_job(JOB, JobState.FINISHED, self._end_s + 0.25, result=result)

    def _ticks(self) -> Iterator[TickDue]:
        price = np.array([20_000 + 3000 * i for i in range(len(MARKETS))])
        for at_s in range(START_S + 120, self._end_s, 120):
            price = np.where(self._rng.random(len(price)) < 0.3, self._rng.integers(15_000, 400_000, len(price)), price)
            # one market has no price now and then
            shown = MARKETS[:-1] if at_s % 1200 == 0 else MARKETS
            yield TickDue(at_s, {market: int(price[i]) for i, market in enumerate(shown)})

    def _turn(self, number: int, tick: TickDue, held: str | None) -> str | None:
        """Every half hour or so something is bought, and renewed or taken half an hour later."""
        match number % 30:
            case 3:
                return self._buy(tick)
            case 10:
                name = f"job-1-refused-{number}"
                order = Acquire(name, MARKETS[1], 2, 30_000, self._decision(tick, Choice.ACQUIRE))
                for _ in range(2):  # given again, since nobody had answered
                    self._order(tick.at_s, order)
                self._say(AllocationRefused(tick.at_s + 3, name, "capacity-not-available", HOSTILE))
            case 20 if held is not None:
                reason = Decision(Choice.RENEW, "it is worth its price", 0.02)
                self._order(tick.at_s, Renew(held, 1, reason))
                self._pay(held, 1, tick.at_s + 60, 20_000)
            case 25 if held is not None and tick.at_s < self._end_s - 3600:
                self._say(NoticeSeen(tick.at_s + 1, held, tick.at_s + 100))
                self._gone(held, tick.at_s + 100, EndCause.EVICTED)
                self._line(held, 1, LedgerKind.REFUND, tick.at_s + 100, 20_000, -20_000)
                return None
            case 28 | 29:
                self._order(tick.at_s, Wait(Decision(Choice.WAIT, "nothing can be bought", float("inf"))))
            case _:
                self._order(tick.at_s, Wait(self._decision(tick, Choice.WAIT)))
        return held

    def _buy(self, tick: TickDue) -> str:
        name, market = f"job-1-buy-{self._bought}", MARKETS[2 + self._bought % 3]
        self._bought += 1
        self._order(tick.at_s, Acquire(name, market, 1, 40_000, self._decision(tick, Choice.ACQUIRE)))
        self._grant(tick.at_s + 4, name, market, 40_000)
        self._pay(name, 0, tick.at_s + 4, 20_000)
        return name

    def _decision(self, tick: TickDue, verdict: Choice) -> Decision:
        found = []
        for market in sorted(tick.prices):
            beta, each = (float(v) for v in self._rng.random(2))
            why = "" if verdict is Choice.ACQUIRE and not found else f"{each:.1%} dearer than the best"
            found.append(Candidate(market, 2, tick.prices[market], 563, beta, 0.1, 4.0, each, why))
        reason = (
            f"the best of {len(found)} markets, {found[0].market}, would make work cost "
            f"${found[0].cost_per_work:.5f}/vCPU-h; what is held costs $0.05000/vCPU-h"
        )
        return Decision(verdict, reason, 0.05, tuple(found))

    def _close(self, held: str) -> None:
        before_s = self._end_s + 600
        for at_s in (self._end_s - 60, self._end_s):  # repeated until it is gone
            self._order(at_s, Lapse(held, 2, before_s, Decision(Choice.LAPSE, "the job is done", float("inf"))))
        self._gone(held, before_s, EndCause.USER)

    def _progress(self) -> None:
        rng, clock = self._rng, 0
        for at_s in range(START_S + 60, self._end_s, 30):
            clock += int(rng.integers(1, 20))
            loss = None if clock < 20 else 2.0 / (1 + clock / 100)
            shown = {"clock": clock, "loss": loss, "stage": 1 + (at_s // 1800) % 3, "ready": 2}
            shown["seconds_per_clock"] = None if clock < 20 else 0.01 + float(rng.random()) / 100
            self._store.jobs.observe(JOB, at_s + 0.4, ObservationKind.PROGRESS, shown)
            if at_s % 1800 == 60:  # the shards go from one to the next, and the first is kept
                node = f"i-{(at_s // 1800) % 3}"
                maps = {"servers": ["i-reliable", node], "backups": [None, "i-reliable"]}
                self._store.jobs.observe(JOB, at_s + 0.4, ObservationKind.SHARDS, maps)

    def _grant(self, at_s: int, name: str, market: Market, bid: int | None) -> None:
        tier = Tier.RELIABLE if bid is None else Tier.TRANSIENT
        allocation = Allocation(name, market, 1, at_s - 1, tier, bid)
        self._store.purchases.plan(name, JOB, "acquire", name, {}, at_s)
        self._store.purchases.record_allocation(JOB, name, allocation, (f"i-{name}",))
        self._say(AllocationGranted(at_s, name, allocation))

    def _gone(self, name: str, at_s: int, cause: EndCause) -> None:
        self._store.purchases.end_allocation(name, at_s, cause)
        self._say(AllocationGone(at_s, name, cause))

    def _pay(self, name: str, hour: int, at_s: int, micros: int) -> None:
        self._line(name, hour, LedgerKind.CHARGE, at_s, micros, micros)

    def _line(self, name: str, hour: int, kind: LedgerKind, at_s: int, price: int, amount: int) -> None:
        self._store.purchases.add_lines([LedgerLine(JOB, name, hour, kind, at_s, price, amount, "spot")])

    def _say(self, event: Any) -> None:
        self._append("event", event.at_s, event)

    def _order(self, at_s: int, order: Any) -> None:
        self._append("order", at_s, order)

    def _append(self, direction: Any, at_s: int, item: Any) -> None:
        entry = Entry(direction, float(at_s), at_s + 0.5, to_record(item))
        self._seq = self._store.journals.append(JOB, self._seq, [entry])
