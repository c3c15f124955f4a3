"""Simulation of one job from its start to its end, event by event.

Charges and machine time are those of the models of `bidding.billing`, hour by hour.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.eviction_arrays import EvictionArrays
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import PPM, JobParameters
from proteus_spot.bidding.backtest.price_arrays import NEVER_S, Markets, Records, event_at, passed_at, price_seconds
from proteus_spot.bidding.backtest.schemes import acquire, renews
from proteus_spot.bidding.backtest.view import FOLLOWED, HELD, MOMENT, SchemeView, price_at
from proteus_spot.bidding.billing.expected import BillingKind, hour_micros, is_refunded
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

_COST, _PAID, _FREE = int(Outcome.COST_MICROS), int(Outcome.PAID_VCPU_S), int(Outcome.FREE_VCPU_S)
_RUNTIME, _ON_DEMAND, _FINISHED = int(Outcome.RUNTIME_S), int(Outcome.ON_DEMAND_VCPU_S), int(Outcome.FINISHED)
_EVICTIONS, _PURCHASES = int(Outcome.EVICTIONS), int(Outcome.PURCHASES)
_HOURLY_REFUND, _PER_SECOND = int(BillingKind.HOURLY_REFUND), int(BillingKind.PER_SECOND)

#: Facts of an allocation that no scheme sees: time of its eviction; start of the hour in progress, and the cost of a
#: whole hour at its price; its row in the log of purchases, -1 if it has none.
ACCOUNT = np.dtype([(name, np.int64) for name in ("takes_s", "hour_s", "charge_micros", "row")], align=True)


@inline_jit
def prorated(amount: int, part_s: int, whole_s: int) -> int:
    """Return the share of an `amount` of 0 or more, rounded half to even; as `bidding.market.money.prorate`."""
    quotient = amount * part_s // whole_s
    twice = 2 * (amount * part_s - quotient * whole_s)
    return quotient + 1 if twice > whole_s or (twice == whole_s and quotient % 2 == 1) else quotient


@inline_jit
def end_hour(
    setting: Records, markets: Markets, held: Records, account: Records, at_s: int, evicted: bool, out: Int64s
) -> None:
    """Book the cost of the hour in progress until `at_s`: all of it, its share if the job ends in it, or nothing.

    An eviction exactly at the hour's end counts as after it: the hour stays paid. Machine time is free in a refunded
    hour, else paid.
    """
    used_s = at_s - account.hour_s
    first_hour = account.hour_s == held.launched_s
    if evicted and used_s < HOUR_S and is_refunded(setting.billing, first_hour):
        out[_FREE] += held.vcpus * used_s
        return
    out[_PAID] += held.vcpus * used_s
    if setting.billing == _HOURLY_REFUND:
        out[_COST] += prorated(account.charge_micros, used_s, HOUR_S)
    elif used_s > 0:
        out[_COST] += _by_second(setting, markets, held, account, used_s, first_hour)


@inline_jit
def _by_second(
    setting: Records, markets: Markets, held: Records, account: Records, used_s: int, first_hour: bool
) -> int:
    """Return the cost of the seconds used of an hour; of a minimum charge, their share."""
    if setting.billing != _PER_SECOND:
        return prorated(account.charge_micros, used_s, HOUR_S)
    paid_s = max(used_s, setting.minimum_s) if first_hour else used_s
    if setting.reprices == 1:
        seconds = price_seconds(markets, held.market, account.hour_s, account.hour_s + paid_s)
        charge = prorated(seconds * held.count, 1, HOUR_S)
    else:
        charge = prorated(account.charge_micros, paid_s, HOUR_S)
    return prorated(charge, used_s, paid_s)


class Buffers(NamedTuple):
    """Buffers of one thread; their content before and after a job does not matter.

    Attributes
    ----------
    moment : one record of MOMENT, shape (1,).
    held, accounts : records of HELD and ACCOUNT, one for each allocation that may be alive at a time.
    followed : records of FOLLOWED, shape (markets,).
    scratch : shape (8, columns), the scheme's.
    """

    moment: Records
    held: Records
    accounts: Records
    followed: Records
    scratch: NDArray[np.float64]


def room(markets: Markets, deltas: int, setting: JobParameters) -> Buffers:
    """Return the buffers for a job on `markets`, with this number of bid deltas."""
    most = most_held(markets, setting)
    return Buffers(
        np.zeros(1, dtype=MOMENT),
        np.zeros(most, dtype=HELD),
        np.zeros(most, dtype=ACCOUNT),
        np.zeros(len(markets.facts), dtype=FOLLOWED),
        np.zeros((8, max(most + 2, deltas))),
    )


def most_held(markets: Markets, setting: JobParameters) -> int:
    """Return the maximum number of live allocations: single machines up to the cap, and as many that lapse.

    The replacement of a lapsing allocation cannot lapse itself before that one has ended.
    """
    smallest = int(markets.facts["vcpus"].min()) if len(markets.facts) else 1
    return 2 * (setting.max_spot_vcpus // smallest) + 1


@inline_jit
def simulate(
    rule: int,
    parameters: NDArray[np.float64],
    settings: Records,
    markets: Markets,
    table: EvictionArrays,
    start_s: int,
    room: Buffers,
    out: Int64s,
    log: Int64s,
) -> None:
    """Run the job that starts at `start_s`; write its row to `out`, its purchases to `log`.

    Parameters
    ----------
    out : shape (len(Outcome),).
    log : shape (rows, len(LOG_COLUMNS)); purchases beyond the rows are left out.

    Notes
    -----
    In one second, in this order: the work done until then, which may end the job; evictions; ends of billing hours;
    then, at a tick and after any end of an allocation, the renewals and one purchase.
    """
    setting = settings[0]
    held, accounts, followed = room.held, room.accounts, room.followed
    for market in range(len(followed)):
        followed[market].event = event_at(markets, market, start_s)
        followed[market].cool_s = start_s
    moment = room.moment
    moment[0].started_s = start_s
    view = SchemeView(moment, held, settings, markets, table, followed, parameters, room.scratch)
    out[:] = 0
    holds = 0
    now_s = start_s
    end_s = start_s + setting.window_s
    tick_s = start_s
    stalled_s = start_s  # no progress before
    checkpoint_s = NEVER_S  # the next one
    work = 0
    saved = 0
    wake_s = 0  # nothing is bought before
    restarts = False  # the next machines begin from a checkpoint
    saves = setting.checkpoint_s > 0 and setting.resize_overhead_s > 0  # a change stops the job, which saves its state
    target = setting.work_vcpu_s * PPM
    while True:
        # until when does nothing happen?
        next_s = min(tick_s, end_s, checkpoint_s)
        if wake_s > now_s:
            next_s = min(next_s, wake_s)
        rate = setting.reliable_count * setting.reliable_vcpus * setting.reliable_works
        for slot in range(holds):
            rate += held[slot].vcpus
            next_s = min(next_s, accounts[slot].takes_s, accounts[slot].hour_s + HOUR_S)
        # the work done until then
        rate *= setting.efficiency_ppm
        from_s = max(now_s, stalled_s)
        if rate > 0:
            done_s = from_s + (target - work + rate - 1) // rate
            if done_s <= next_s:
                now_s = done_s
                out[_FINISHED] = 1
                break
            work += rate * max(next_s - from_s, 0)
        now_s = next_s
        if now_s == end_s:
            break
        if now_s == checkpoint_s:
            saved = work
            checkpoint_s += setting.checkpoint_s
        # evictions
        lost = False
        slot = 0
        while slot < holds:
            if accounts[slot].takes_s == now_s:
                lost = True
                followed[held[slot].market].cool_s = now_s + 1
                holds = _end(setting, markets, held, accounts, slot, holds, now_s, True, out, log)
            else:
                slot += 1
        if lost:
            stalled_s = max(stalled_s, now_s + setting.eviction_overhead_s)
            if setting.checkpoint_s > 0:
                work = saved
                restarts = holds == 0
                stalled_s = max(stalled_s, now_s + setting.restart_s)
                checkpoint_s = NEVER_S if restarts else stalled_s + setting.checkpoint_s
        # ends of billing hours
        left = False
        slot = 0
        while slot < holds:
            if accounts[slot].hour_s + HOUR_S == now_s:
                if held[slot].lapsing:
                    left = True
                    holds = _end(setting, markets, held, accounts, slot, holds, now_s, False, out, log)
                    stalled_s = max(stalled_s, now_s + setting.resize_overhead_s)
                    if saves:
                        saved = work
                        checkpoint_s = stalled_s + setting.checkpoint_s
                    continue
                end_hour(setting, markets, held[slot], accounts[slot], now_s, False, out)
                price = price_at(markets, followed, held[slot].market, now_s)
                _begin_hour(setting, held[slot], accounts[slot], now_s, price)
            slot += 1
        # decisions
        if now_s == tick_s:
            tick_s += setting.tick_s
        elif not (lost or left or now_s == wake_s):
            continue
        if lost and setting.patient == 1:
            wake_s = stalled_s - setting.resize_overhead_s
        moment[0].now_s, moment[0].holds = now_s, holds
        for slot in range(holds):
            if held[slot].lapsing == 0 and held[slot].paid_until_s - now_s <= setting.renewal_lead_s:
                if renews(rule, view, slot):
                    held[slot].paid_until_s += HOUR_S
                else:
                    held[slot].lapsing = 1
        if holds == len(held) or now_s < wake_s:
            continue
        market, count, bid = acquire(rule, view)
        if market < 0 or count < 1:
            continue
        price = price_at(markets, followed, market, now_s)
        if price < 0 or price > bid:
            continue  # refused
        if holds == 0 and setting.checkpoint_s > 0:
            if restarts:
                stalled_s = max(stalled_s, now_s + setting.restart_s)
                restarts = False
            checkpoint_s = max(stalled_s, now_s) + setting.checkpoint_s
        bought, account = held[holds], accounts[holds]
        bought.market, bought.count, bought.bid_micros = market, count, bid
        bought.vcpus, bought.launched_s = count * markets.facts[market].vcpus, now_s
        bought.paid_until_s, bought.lapsing = now_s, 0
        account.takes_s = passed_at(markets, market, followed[market].event, bid, end_s)
        if setting.max_life_s > 0 and now_s + setting.max_life_s < end_s:
            account.takes_s = min(account.takes_s, now_s + setting.max_life_s)
        _begin_hour(setting, bought, account, now_s, price)
        row = out[_PURCHASES]
        account.row = row if row < len(log) else -1
        if row < len(log):
            log[row, 0], log[row, 1], log[row, 2], log[row, 3] = now_s, market, count, bid
        out[_PURCHASES] += 1
        holds += 1
        stalled_s = max(stalled_s, now_s + setting.resize_overhead_s)
        if saves:
            saved = work
            checkpoint_s = stalled_s + setting.checkpoint_s
    # the end: held allocations are terminated, unless they are taken in this second
    while holds > 0:
        taken = accounts[holds - 1].takes_s == now_s
        holds = _end(setting, markets, held, accounts, holds - 1, holds, now_s, taken, out, log)
    runtime_s = now_s - start_s
    out[_RUNTIME] = runtime_s
    out[_ON_DEMAND] = setting.reliable_count * setting.reliable_vcpus * runtime_s
    hourly = setting.reliable_count * setting.reliable_micros
    out[_COST] += hourly * (runtime_s // HOUR_S) + prorated(hourly, runtime_s % HOUR_S, HOUR_S)


@inline_jit
def _begin_hour(setting: Records, held: Records, account: Records, at_s: int, price_micros: int) -> None:
    account.hour_s = at_s
    account.charge_micros = hour_micros(setting.billing, setting.flat_micros, price_micros) * held.count
    if held.paid_until_s <= at_s:  # bought now; or the renewal was not decided in time, so the hour is paid
        held.paid_until_s = at_s + HOUR_S


@inline_jit
def _end(
    setting: Records,
    markets: Markets,
    held: Records,
    accounts: Records,
    slot: int,
    holds: int,
    at_s: int,
    evicted: bool,
    out: Int64s,
    log: Int64s,
) -> int:
    """End the allocation in `slot` and close the gap, in the order of the grants; return how many are left."""
    end_hour(setting, markets, held[slot], accounts[slot], at_s, evicted, out)
    row = accounts[slot].row
    if row >= 0:
        log[row, 4], log[row, 5] = at_s, 1 if evicted else 0
    if evicted:
        out[_EVICTIONS] += 1
    for to in range(slot, holds - 1):
        held[to] = held[to + 1]
        accounts[to] = accounts[to + 1]
    return holds - 1
