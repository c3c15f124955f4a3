"""What a live job knows, in the terms of `fleet`: markets as rows, work and prices in machines on demand."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf, log1p

import numpy as np

from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.market.model import HOUR_S, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.policies.base import MarketView
from proteus_spot.bidding.policies.deadline.fleet import choose, least_on_demand, work_price
from proteus_spot.bidding.policies.deadline.spot_spells import Floats
from proteus_spot.bidding.policies.limits import cheapest_on_demand, is_on_demand, on_demand_within
from proteus_spot.bidding.policies.offers import counts_of

#: Hours for which a machine is assumed to be needed where no deadline tells.
_NEEDED_H = 4.0
#: β of a market that is sure to take a machine within the hour; it has no hazard.
_SURE = 1.0 - 1e-9
#: Share of its price at which a held machine is weighed where what would take its place may be refused.
_IN_HAND = 0.85
#: Number of markets that are weighed in addition to those in which machines are held: the cheapest ones.
_WEIGHED = 64
#: Machines of other speeds are counted in vCPUs of one type: rounding errors of such counts are smaller.
ROUNDED = 1e-6


@dataclass(frozen=True, slots=True)
class MarketRow:
    """A market, its prices in dollars of a vCPU-hour of work.

    Attributes
    ----------
    vcpus, work : size of a machine, and the vCPUs of the usual speed that it works as.
    count : machines that may be asked for now in addition to those held.
    beta : probability that a machine is lost within the hour.
    held_usd, new_usd : of a machine that is held, and of a new one, its losses and joining included.
    there, usual : machines that could be had, by what is known now and in the mean; held ones included.
    """

    market: Market
    vcpus: int
    work: float
    held: int
    count: int
    beta: float
    held_usd: float
    new_usd: float
    there: int
    usual: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """What to hold until the next decision.

    Attributes
    ----------
    spot : machines by market, of those that are weighed.
    on_demand_vcpus : vCPUs on demand.
    lacking_vcpus : vCPUs on demand that the deadline needs in addition, and that cannot be had.
    highest_usd : dollars of a vCPU-hour of work up to which spot is worth it.
    """

    spot: dict[Market, int]
    on_demand_vcpus: int
    lacking_vcpus: int
    highest_usd: float


class FleetView:
    """A view of the market in the terms of `fleet`, and what follows."""

    def __init__(self, view: MarketView) -> None:
        self.view = view
        self._room_vcpus = max(view.job.max_spot_vcpus - view.noticed_vcpus, 0)
        self.counts, self.refusals = counts_of(view, self._room_vcpus)

    @cached_property
    def measured(self) -> TimeLeft | None:
        """The work before the deadline; None without one, or before a speed was measured."""
        left = self.view.time_left
        return None if left is None or left.clocks_per_vcpu_s <= 0 else left

    @cached_property
    def unit_vcpus(self) -> int:
        """The vCPUs of the machine on demand that all is counted in; 1 where none can be had."""
        best = cheapest_on_demand(self.view, self._most_vcpus, at_rest=True)
        return 1 if best is None else self.view.size_of(best)

    @cached_property
    def unit_work(self) -> float:
        """The vCPUs of the usual speed that this machine works as."""
        best = cheapest_on_demand(self.view, self._most_vcpus, at_rest=True)
        return 1.0 if best is None else self.view.work_of(best)

    def equal_vcpus(self, market: Market) -> float:
        """Return the vCPUs of this machine's type that work as fast as a machine of `market`."""
        return self.view.work_of(market) / self.unit_work * self.unit_vcpus

    @property
    def _most_vcpus(self) -> int:
        return self.view.on_demand_room_vcpus + self.view.spot_vcpus + self.view.noticed_vcpus

    @cached_property
    def time_left_s(self) -> float:
        """Seconds to the deadline in which machines work; boots and the time to the next decision are counted apart."""
        left, job = self.measured, self.view.job
        if left is None:
            return inf
        return left.deadline_s - self.view.now_s - max(left.overhead_s - job.boot_s - job.gap_s, 0.0)

    @cached_property
    def reliable_work(self) -> float:
        """The vCPUs of the usual speed that the reliable tier works as."""
        view = self.view
        reliable = [each for each in view.footprint if each.tier is Tier.RELIABLE and view.job.reliable_works]
        return sum(each.count * view.work_of(each.market) for each in reliable)

    @cached_property
    def on_demand_vcpus(self) -> float:
        """What is held on demand for the deadline, in vCPUs of the machine that all is counted in."""
        return sum(each.count * self.equal_vcpus(each.market) for each in self.view.footprint if is_on_demand(each))

    @cached_property
    def booting_vcpu_s(self) -> float:
        """The vCPU-seconds of work for which machines that are held on demand still boot."""
        view = self.view
        boot_s, held = view.job.boot_s + view.job.resize_overhead_s, filter(is_on_demand, view.footprint)
        left_s = [(each, max(each.launched_at_s + boot_s - view.now_s, 0.0)) for each in held]
        return sum(seconds * each.count * view.work_of(each.market) for each, seconds in left_s)

    def left_vcpu_s(self, margin: float) -> float:
        """Return the vCPU-seconds of work that the reliable tier leaves by the deadline; 1 without one."""
        left = self.measured
        if left is None:
            return 1.0
        work = left.clocks / left.clocks_per_vcpu_s * (1.0 + margin)
        return max(work - self.reliable_work * max(self.time_left_s, 0.0), 0.0)

    @cached_property
    def needed_vcpus(self) -> float:
        """The vCPUs that the deadline needs on average, at most all; 0 without one."""
        if self.measured is None:
            return 0.0
        most = self._most_vcpus / self.unit_vcpus * self.unit_work
        return min(self.left_vcpu_s(0.0) / max(self.time_left_s, 1.0), most)

    @cached_property
    def waiting_usd_per_h(self) -> float:
        """Dollars of an hour in which nothing is bought: of time, and of the reliable tier."""
        total = self.view.job.value_of_time_usd_per_h
        for each in self.view.footprint:
            if each.tier is Tier.RELIABLE:
                total += self.view.types[each.market.instance_type].on_demand_micros * each.count / MICROS_PER_DOLLAR
        return total

    @cached_property
    def rows(self) -> tuple[MarketRow, ...]:
        """The markets in which machines are held, and of the others the cheapest, in the markets' order."""
        view = self.view
        held: dict[Market, int] = {}
        for each in view.footprint:
            if each.tier is Tier.TRANSIENT and not is_on_demand(each):
                held[each.market] = held.get(each.market, 0) + each.count
        rests = [m for m in view.cooling & view.prices.keys() if m in view.evictions.rows and m not in held]
        markets = {market for market, count in self.counts.items() if count} | held.keys() | {*rests}
        rows = sorted((self._row(market, held.get(market, 0)) for market in markets), key=lambda row: row.market)
        rows = [row for row in rows if row.held or (row.new_usd < inf and row.vcpus <= self._room_vcpus)]
        dearest = sorted(row.new_usd for row in rows if not row.held)[_WEIGHED - 1 : _WEIGHED]
        return tuple(row for row in rows if row.held or not dearest or row.new_usd <= dearest[0])

    def _row(self, market: Market, held: int) -> MarketRow:
        view, kind = self.view, self.view.types[market.instance_type]
        price = view.prices.get(market, view.last_prices.get(market, 0))  # one that is not known lets nothing go
        work = view.work_of(market)
        each = price / MICROS_PER_DOLLAR / work + view.crossing_usd(market)
        count = self.counts.get(market, 0)
        there, usual = self._supply(market, held, count)
        beta, new_usd = 0.0, inf  # of a market that is not on sale now
        if market in view.evictions.rows and market in view.prices:
            beta = float(view.evictions.of_bid(market, kind.on_demand_micros - price)[0])
            new_usd = self._new_usd(each, beta)
        return MarketRow(market, view.size_of(market), work, held, count, beta, each, new_usd, there, usual)

    def _new_usd(self, each: float, beta: float) -> float:
        if beta >= _SURE:
            return inf
        job = self.view.job
        joins_s = job.boot_s + job.resize_overhead_s + job.eviction_overhead_s * beta
        left, needed_s = self.measured, _NEEDED_H * HOUR_S
        if left is not None:
            most = self._most_vcpus // self.unit_vcpus * self.unit_work
            needed_s = left.clocks / left.clocks_per_vcpu_s / max(most + self.reliable_work, 1)
        return work_price(each / HOUR_S, 0.0, -log1p(-beta) / HOUR_S, joins_s, needed_s) * HOUR_S

    def _supply(self, market: Market, held: int, count: int) -> tuple[int, float]:
        """Return the machines of a market that could be had, by what is known now and in the mean."""
        known, most = self.view.known.get(market), self._room_vcpus // self.view.size_of(market)
        if known is not None and known.there is not None and known.usually_there is not None:
            return min(int(known.there.value), held + count), known.usually_there.value
        share, expected = 1.0, count
        if known is not None:
            expected_share = known.grant.chance * known.grant.size
            share = expected_share if known.share_granted is None else known.share_granted.value
            expected = min(count, max(ceil(expected_share * count), 1))
        usual = 0.0 if market in self.view.beyond_quota else share * most
        return held + expected, max(usual, float(held))  # what is held could be had, whatever was refused since

    def _kept_usd(self) -> Floats:
        """Return the dollars at which held machines are weighed; what would replace them may be refused."""
        known = self.view.known
        seen = [row.market in known and known[row.market].there is not None for row in self.rows]
        kept: Floats = _column(self.rows, "held_usd") * np.where(seen, 1.0, _IN_HAND)
        return kept

    def _allowed_on_demand(self, held: int) -> int:
        """Return the machines on demand that may be held: no more than now where none can be bought, or paid."""
        best = cheapest_on_demand(self.view, self._most_vcpus)
        if best is None:
            return held
        more = on_demand_within(self.view, best)
        if more is None:
            return self._most_vcpus
        return max(held + floor(more * self.equal_vcpus(best) / self.unit_vcpus + ROUNDED), 0)

    def fleet(self) -> Fleet:
        """Return what to hold until the next decision."""
        view, rows, unit, unit_work = self.view, self.rows, self.unit_vcpus, self.unit_work
        sizes, works = _column(rows, "vcpus") / unit, _column(rows, "work") / unit_work
        wanted = np.zeros(len(rows))
        per_s = unit_work / HOUR_S  # from dollars of a vCPU-hour to those of a second of the machine on demand
        best = cheapest_on_demand(view, self._most_vcpus, at_rest=True)
        on_demand_usd = inf
        if best is not None:
            kind = view.types[best.instance_type]
            on_demand_usd = kind.on_demand_micros / MICROS_PER_DOLLAR / view.work_of(best) + view.crossing_usd(best)
        margin = 0.0 if self.measured is None else self.measured.margin
        # The rule counts held machines as working: what they boot for is left, too.
        sure_left_s = (self.left_vcpu_s(margin) + self.booting_vcpu_s) / unit_work
        boot_s = view.job.boot_s + view.job.resize_overhead_s
        machines, held = self._most_vcpus // unit, int(self.on_demand_vcpus / unit + ROUNDED)
        allowed = self._allowed_on_demand(held)
        lacking = 0
        if allowed < machines:
            net = least_on_demand(sure_left_s, self.time_left_s, view.job.gap_s, boot_s, machines, held)
            lacking, machines = max(net - allowed, 0), allowed
        count, highest = choose(
            self.left_vcpu_s(0.0) / unit_work, sure_left_s, self.time_left_s, view.job.gap_s, machines, held, boot_s,
            on_demand_usd * per_s, self.waiting_usd_per_h / HOUR_S, self.reliable_work / unit_work,
            self._room_vcpus / unit, self._kept_usd() * per_s, _column(rows, "new_usd") * per_s, sizes,
            _column(rows, "held"), _column(rows, "there"), _column(rows, "usual") * works, wanted,
        )  # fmt: skip
        highest_usd = highest / per_s
        spot = {row.market: int(n) for row, n in zip(rows, wanted, strict=True)}
        left = self._room_vcpus - count * unit - sum(spot[row.market] * row.vcpus for row in rows)
        # What is left is asked for in hope: a request that is refused costs time alone.
        for row in sorted(rows, key=lambda row: (row.new_usd, row.market)):
            if row.market not in view.known or view.known[row.market].there is None:
                asks = spot[row.market] - row.held
                more = min(left // row.vcpus, row.count - asks) if asks >= 0 and row.new_usd <= highest_usd else 0
                spot[row.market] += max(more, 0)
                left -= max(more, 0) * row.vcpus
        return Fleet(spot, min(count, machines) * unit, lacking * unit, highest_usd)


def _column(rows: tuple[MarketRow, ...], name: str) -> Floats:
    return np.array([float(getattr(row, name)) for row in rows])
