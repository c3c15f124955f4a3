"""Reasons for the decisions of a simulated job, from the live engine run through the same job."""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as a_field

from proteus_spot.bidding.backtest.replay.engine_replay import ReplayResult, run_by_engine
from proteus_spot.bidding.engine.events import AllocationGranted, BidEvent
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.policies.base import Decision
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.job_runs import Cell, setting_of
from proteus_spot.studies.backtest.job_story import AllocationLife, Explainer

#: Key of an allocation: market, instances, bid, and the second of its grant.
_Grant = tuple[Market, int, Micros, int]


def explainer(field: BacktestInputs, spec: BacktestSpec, cell: Cell, start_s: int) -> Explainer | None:
    """Return an explainer for a scheme whose rule is that of a live policy; None for other schemes.

    Notes
    -----
    A reason counts only where the engine held, and did, what the simulated job did, so that every reason given is the
    true one.
    """
    scheme = spec.scheme(cell.scheme)
    if scheme.policy is None:
        return None
    (markets,) = field.zones([cell.zone]).values()
    replayed = run_by_engine(
        field.traces,
        markets,
        field.types,
        field.evictions,
        field.foresight,
        scheme,
        start_s,
        field.reference,
        setting_of(scheme, spec, field.reference, cell.hours),
    )
    return _Reasons(_lives(replayed, markets)).read(replayed.journal)


def _lives(replayed: ReplayResult, markets: Sequence[Market]) -> list[tuple[_Grant, int]]:
    """Return each allocation that the engine held, with the second of its end."""
    return [
        ((markets[market], count, bid, granted_s), ended_s)
        for granted_s, market, count, bid, ended_s, _ in replayed.purchases.tolist()
    ]


@dataclass
class _Reasons:
    """An `Explainer` of one journal.

    Attributes
    ----------
    lives : each allocation, with the second of its end.
    waits, purchases : the decision by its second, and by the allocation that was bought.
    hours : time and decision on an hour, by its allocation and beginning.
    """

    lives: Sequence[tuple[_Grant, int]]
    waits: dict[int, Decision] = a_field(default_factory=dict)
    purchases: dict[_Grant, Decision] = a_field(default_factory=dict)
    hours: dict[tuple[_Grant, int], tuple[int, Decision]] = a_field(default_factory=dict)

    def read(self, journal: Sequence[BidEvent | Order]) -> "_Reasons":
        """Read the reasons of a journal; return itself."""
        grants: dict[str, _Grant] = {}
        now_s = 0
        for item in journal:
            match item:
                case Acquire():
                    self.purchases[item.market, item.count, item.bid_micros or 0, now_s] = item.decision
                case Wait():
                    self.waits[now_s] = item.decision
                case Renew() | Lapse():  # a lapse is ordered again at each tick: its first order decided
                    grant = grants[item.allocation_id]
                    begins_s = grant[3] + item.hour * HOUR_S
                    self.hours.setdefault((grant, begins_s), (now_s, item.decision))
                case _:
                    now_s = item.at_s
                    if isinstance(item, AllocationGranted):
                        a = item.allocation
                        grants[a.allocation_id] = (a.market, a.count, a.bid_micros or 0, a.launched_at_s)
        return self

    def choice(self, at_s: int, bought: AllocationLife | None, held: tuple[AllocationLife, ...]) -> Decision | None:
        """Return the decision at a decision point."""
        held_by_engine = {grant for grant, ended_s in self.lives if grant[3] <= at_s < ended_s}
        simulated = {_grant(life) for life in held}
        if bought is None:
            return self.waits.get(at_s) if held_by_engine == simulated else None
        purchase = _grant(bought)
        return self.purchases.get(purchase) if held_by_engine == simulated | {purchase} else None

    def hour(self, life: AllocationLife, begins_s: int) -> tuple[int, Decision] | None:
        """Return the time of and the decision on the hour."""
        return self.hours.get((_grant(life), begins_s))


def _grant(life: AllocationLife) -> _Grant:
    return life.market, life.count, life.bid_micros, life.granted_s
