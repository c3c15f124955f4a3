"""One job through the compiled simulator and through the naive one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np

from proteus_spot.bidding.backtest.eviction_arrays import pack_table
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import PPM, JobParameters
from proteus_spot.bidding.backtest.price_arrays import Markets, pack
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.runner import run_one
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import Scheme
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.forecast import Forecast
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.backtest.naive import MICRO, RELIABLE, Events, Life, Naive, Told

A = Market("small", "a")
B = Market("large", "a")
C = Market("small", "b")
TYPES = {
    "small": InstanceType("small", 2, 4.0, 100_000),
    "large": InstanceType("large", 8, 16.0, 440_000),
}
DELTAS = (100, 10_000, 400_000)
WANTED_VCPUS = 16


def flat_table(beta: float = 0.0, median_s: float = 3600.0) -> EvictionTable:
    return EvictionTable(DELTAS, {market: ((beta, median_s),) * len(DELTAS) for market in (A, B, C)})


@dataclass(frozen=True)
class Case:
    """A job, its markets and its scheme, in the simulator's own settings."""

    prices: Mapping[Market, Events]
    rule: SchemeId = SchemeId.STANDARD
    start_s: int = 0
    evictions: EvictionTable = field(default_factory=flat_table)
    setting: JobParameters = field(
        default_factory=lambda: JobParameters(work_vcpu_s=WANTED_VCPUS * 3600, window_s=4 * 3600, reliable_count=0)
    )

    foresight: Forecast | None = None  # of BEST
    parameter: int = 100  # of ABOVE the bid delta, of ORACLE the least free seconds

    @property
    def scheme(self) -> Scheme:
        """The rule with its parameter."""
        parameter = WANTED_VCPUS if self.rule is SchemeId.STANDARD else self.parameter
        return Scheme(self.rule, parameters=(float(parameter),))

    def compiled(self) -> Told:
        """Return what the compiled simulator makes of it."""
        markets = sorted(self.prices)
        rows, log = run_one(
            packed(self.prices),
            pack_table(self.evictions, markets, self.foresight),
            self.scheme,
            self.start_s,
            Reference(TYPES["small"]),
            self.setting,
        )
        told = Told(
            cost_micros=int(rows[Outcome.COST_MICROS]),
            runtime_s=int(rows[Outcome.RUNTIME_S]),
            paid_vcpu_s=int(rows[Outcome.PAID_VCPU_S]),
            free_vcpu_s=int(rows[Outcome.FREE_VCPU_S]),
            evictions=int(rows[Outcome.EVICTIONS]),
            finished=bool(rows[Outcome.FINISHED]),
        )
        assert rows[Outcome.ON_DEMAND_VCPU_S] == (
            told.runtime_s * self.setting.reliable_count * self.setting.reliable_vcpus
        )
        told.lives = [(markets[row[1]], *map(int, row[[0, 2, 3, 4, 5]])) for row in log]
        return told

    def naive(self) -> Told:
        """Return what the naive one makes of it."""
        s = self.setting
        job = JobModel(
            scaling_efficiency=s.efficiency_ppm / PPM,
            resize_overhead_s=s.resize_overhead_s,
            eviction_overhead_s=self._believed_overhead_s(),
            allocation_vcpus=s.allocation_vcpus,
            max_spot_vcpus=s.max_spot_vcpus,
            renewal_lead_s=s.renewal_lead_s,
            reliable_works=bool(s.reliable_works),
        )
        told = Naive(
            prices={} if self.rule is SchemeId.NONE else self.prices,
            types=TYPES | {RELIABLE.instance_type: InstanceType("reliable", s.reliable_vcpus, 1.0, s.reliable_micros)},
            evictions=self.evictions,
            job=job,
            work_vcpu_s=s.work_vcpu_s,
            window_s=s.window_s,
            tick_s=s.tick_s,
            standard_vcpus=WANTED_VCPUS if self.rule is SchemeId.STANDARD else None,
            delta_micros=self.parameter if self.rule is SchemeId.ABOVE else None,
            free_at_least_s=self.parameter if self.rule is SchemeId.ORACLE else None,
            eviction_stop_s=s.eviction_overhead_s,
            reliable_count=s.reliable_count,
            reliable_vcpus=s.reliable_vcpus,
            reliable_usd=Decimal(s.reliable_micros) * MICRO,
            efficiency=Fraction(s.efficiency_ppm, PPM),
            checkpoint_s=s.checkpoint_s or None,
            restart_s=s.restart_s,
            foresight=self.foresight if self.rule is SchemeId.BEST else None,
            patient=bool(s.patient),
        ).run(self.start_s)
        told.lives = [_told(life) for life in told.lives]
        return told

    def _believed_overhead_s(self) -> float:
        s = self.setting
        if not s.checkpoint_s:
            return s.eviction_overhead_s
        return max(s.restart_s, s.eviction_overhead_s) + s.checkpoint_s / 2


def packed(prices: Mapping[Market, Events]) -> Markets:
    """Return the markets as arrays, sorted."""
    traces = TraceSet({market: _trace(events) for market, events in prices.items()})
    return pack(traces, sorted(prices), TYPES)


def _told(life: Life) -> tuple[Market, int, int, int, int, int]:
    a = life.allocation
    return (a.market, a.launched_at_s, a.count, a.bid_micros or 0, life.ended_s, int(life.evicted))


def _trace(events: Events) -> Trace:
    times, prices = zip(*events, strict=True) if events else ((), ())
    return Trace(np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))
