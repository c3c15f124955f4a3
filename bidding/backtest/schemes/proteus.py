"""BidBrain as published, equations (1)-(4): the decisions of `bidding.policies.proteus`, to the last bit.

The order of every sum and product is that of `bidding.policies.footprint`: two candidates that are equal there must be
equal here, or a tie would be broken otherwise.
"""

import numpy as np

from bidding.backtest.eviction_arrays import BETA, USEFUL_S, of_bid
from bidding.backtest.jit import inline_jit
from bidding.backtest.parameters import PPM
from bidding.backtest.price_arrays import Records
from bidding.backtest.view import NOTHING, SchemeView, footprint_vcpus, hour_micros, on_sale, price
from bidding.billing.expected import compiled_is_refunded, compiled_paid_share
from bidding.market.model import HOUR_S
from bidding.market.money import MICROS_PER_DOLLAR

# rows of the scratch array: one column a member of the footprint, or a delta
_BETA, _COST, _USEFUL, _RATE, _OVERHEAD, _WORK = range(6)


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of the best market x bid delta if it lowers E of the footprint."""
    setting = view.setting[0]
    left = min(setting.allocation_vcpus, setting.max_spot_vcpus - footprint_vcpus(view))
    if left < 1:
        return NOTHING
    members = _members(view, -1)
    survives, cost = _together(view, members)
    best_each = _cost_per_work(view, members, False)
    phi = (setting.efficiency_ppm / PPM) / HOUR_S
    lost_s = eviction_overhead_s(setting)
    refunded = compiled_is_refunded(setting.billing, True)
    deltas = len(view.table.deltas_micros)
    overhead, work = view.scratch[_OVERHEAD, :deltas], view.scratch[_WORK, :deltas]
    best = NOTHING
    for market in range(len(view.markets.facts)):
        vcpu = view.markets.facts[market].vcpus
        count = left // vcpu
        now = on_sale(view, market) if count > 0 else -1
        if now < 0:
            continue
        betas, usefuls = view.table.cells[BETA, market], view.table.cells[USEFUL_S, market]
        for delta in range(deltas):
            any_eviction = 1.0 - survives * (1.0 - betas[delta])
            overhead[delta] = any_eviction * lost_s + setting.resize_overhead_s
            work[delta] = 0.0
        for member in range(members):
            useful, rate = view.scratch[_USEFUL, member], view.scratch[_RATE, member]
            for delta in range(deltas):
                work[delta] += rate * max(useful - overhead[delta], 0.0)
        rate = float(count) * vcpu
        dollars = hour_micros(view, now) / MICROS_PER_DOLLAR
        for delta in range(deltas):
            done = (work[delta] + rate * max(usefuls[delta] - overhead[delta], 0.0)) * phi
            if done > 0.0:
                paid = compiled_paid_share(refunded, betas[delta], usefuls[delta], HOUR_S)
                each = (cost + paid * dollars * count) / done
                if each < best_each:
                    best_each = each
                    best = (market, count, now + view.table.deltas_micros[delta])
    return best


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return whether the footprint's work costs no more with the allocation's next hour than without it."""
    members = _members(view, slot)
    let_go = _cost_per_work(view, members, True)
    _hold(view, members, slot, HOUR_S)
    renewed = _cost_per_work(view, members + 1, False)
    return renewed <= let_go and renewed < np.inf


@inline_jit
def eviction_overhead_s(setting: Records) -> float:
    """Return λ as BidBrain knows it: the seconds that an eviction is expected to cost the whole footprint.

    With checkpoints it is the restart and half an interval, because the work since the last checkpoint is lost and an
    eviction is as likely in each of the interval's seconds.

    Source: Proteus (EuroSys 2017), Table 2; the paper gives no λ of checkpointing.
    """
    if setting.checkpoint_s == 0:
        return float(setting.eviction_overhead_s)
    return float(max(setting.eviction_overhead_s, setting.restart_s) + setting.checkpoint_s / 2.0)


@inline_jit
def _members(view: SchemeView, without: int) -> int:
    """Write what each held allocation is until its last decided hour ends, the reliable ones first; return how many."""
    setting = view.setting[0]
    members = 0
    if setting.reliable_count > 0:
        left_s = HOUR_S - (view.moment[0].now_s - view.moment[0].started_s) % HOUR_S
        dollars = setting.reliable_micros / MICROS_PER_DOLLAR
        view.scratch[_BETA, 0] = 0.0
        view.scratch[_COST, 0] = dollars * setting.reliable_count * (left_s / HOUR_S)
        view.scratch[_USEFUL, 0] = left_s
        view.scratch[_RATE, 0] = setting.reliable_count * setting.reliable_vcpus * setting.reliable_works
        members = 1
    for slot in range(view.moment[0].holds):
        if view.held[slot].lapsing == 0 and slot != without:
            _hold(view, members, slot, view.held[slot].paid_until_s - view.moment[0].now_s)
            members += 1
    return members


@inline_jit
def _hold(view: SchemeView, member: int, slot: int, left_s: int) -> None:
    """Write β, C (1), ω and k ν of a held allocation for `left_s` seconds; as `bidding.policies.footprint.held_part`."""
    held, scratch = view.held[slot], view.scratch
    now = price(view, held.market)
    beta, median_s = of_bid(view.table, held.market, held.bid_micros - now)
    useful_s = (1.0 - beta) * left_s + beta * min(median_s, float(left_s))
    first_hour = view.moment[0].now_s + left_s <= held.launched_s + HOUR_S
    refunded = compiled_is_refunded(view.setting[0].billing, first_hour)
    paid = compiled_paid_share(refunded, beta, useful_s, left_s)
    scratch[_BETA, member] = beta
    scratch[_COST, member] = paid * (hour_micros(view, now) / MICROS_PER_DOLLAR) * held.count * (left_s / HOUR_S)
    scratch[_USEFUL, member] = useful_s
    scratch[_RATE, member] = held.vcpus


@inline_jit
def _together(view: SchemeView, members: int) -> tuple[float, float]:
    """Return (Π(1 - β), C) of the members."""
    survives, cost = 1.0, 0.0
    for member in range(members):
        survives = survives * (1.0 - view.scratch[_BETA, member])
        cost = cost + view.scratch[_COST, member]
    return survives, cost


@inline_jit
def _cost_per_work(view: SchemeView, members: int, resized: bool) -> float:
    """Return E (4) of the members; infinite where no useful work is expected."""
    setting, scratch = view.setting[0], view.scratch
    survives, cost = _together(view, members)
    overhead = (1.0 - survives) * eviction_overhead_s(setting)
    if resized:
        overhead = overhead + setting.resize_overhead_s
    work = 0.0
    for member in range(members):
        work = work + scratch[_RATE, member] * max(scratch[_USEFUL, member] - overhead, 0.0)
    work = work * ((setting.efficiency_ppm / PPM) / HOUR_S)
    return cost / work if work > 0.0 else np.inf
