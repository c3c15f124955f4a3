"""The cheapest hour of work that the recent past promises: all of the cap in one market, and afresh at each hour's end.

A paid hour is worth what it costs; a refunded one is free. So the rule buys where the price, times the chance that the
hour will have to be paid, is lowest for the work that can be expected of it; it bids the very price wherever evictions
cost little. An hour's end opens the question again: who stays keeps the bid of then, and a price that has fallen since
will hardly pass it any more.

Source: BidBrain's cost per work (Proteus, EuroSys 2017, section 4.2), of one purchase instead of the whole footprint.
Differs: chances are those of the market's present signal (`bidding.forecast`), not of its history at large; one large
allocation, since equation (2) charges λ and σ to the whole footprint for every part; what is held is renewed only if
that costs no more than the best fresh purchase. Where bids decide nothing, chances are those of the eviction table, and
the bid is the on-demand price.
"""

import numpy as np

from bidding.backtest.eviction_arrays import BETA, USEFUL_S
from bidding.backtest.jit import inline_jit
from bidding.backtest.parameters import PPM
from bidding.backtest.view import NOTHING, SchemeView, hour_micros, on_sale, price
from bidding.billing.expected import compiled_is_refunded
from bidding.forecast.features import FEATURES, features, signal
from bidding.forecast.hour_value import cost_per_work
from bidding.forecast.model import bins_of, outlook


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of the purchase with the cheapest work, as large as the cap allows."""
    market, count, bid, _ = _best(view, -1)
    return market, count, bid


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return whether the allocation is kept: if its work costs no more than the best fresh purchase's.

    Where its next hour may be refunded, a fresh bid is the better one under a price that has fallen since. What stands under its price is kept: the market
    is taking it, and refunds the hour to who stays.
    """
    held = view.held[slot]
    now = price(view, held.market)
    if now > held.bid_micros:
        return True
    refunded = compiled_is_refunded(view.setting[0].billing, False)
    if now < held.bid_micros and refunded and view.table.bids_decide == 1:
        return False
    if view.setting[0].ceiling == 1 and now > view.markets.facts[held.market].on_demand_micros:
        return False
    bins = np.empty(FEATURES, dtype=np.int64)
    beta, useful_s = _chances(view, held.market, 0, bins)
    delta = _delta_of(view, now, held.bid_micros)
    if delta > 0:
        beta, useful_s = _chances(view, held.market, delta, bins)
    micros = hour_micros(view, now) * held.count
    stays = _cost_per_work(view, micros, held.vcpus, beta, useful_s, 0, _working(view, slot), refunded)
    return bool(stays <= _best(view, slot)[3] and stays < np.inf)


@inline_jit
def _best(view: SchemeView, without: int) -> tuple[int, int, int, float]:
    """Return (market, instances, bid, cost per work) of the best purchase, as if the slot `without` were empty."""
    setting = view.setting[0]
    others = _working(view, without)
    left = min(setting.allocation_vcpus, setting.max_spot_vcpus - others)
    refunded = compiled_is_refunded(setting.billing, True)
    best, best_each = NOTHING, np.inf
    bins = np.empty(FEATURES, dtype=np.int64)
    shares = view.table.foresight.shares
    bids = len(shares) if view.table.bids_decide == 1 else 1
    for market in range(len(view.markets.facts)):
        vcpu = view.markets.facts[market].vcpus
        count = left // vcpu
        now = on_sale(view, market) if count > 0 else -1
        if now < 0:
            continue
        for delta in range(bids):
            beta, useful_s = _chances(view, market, delta, bins)
            sigma = setting.resize_overhead_s
            micros = hour_micros(view, now) * count
            each = _cost_per_work(view, micros, count * vcpu, beta, useful_s, sigma, others, refunded)
            if each < best_each:
                best_each = each
                bid = view.markets.facts[market].on_demand_micros
                if view.table.bids_decide == 1:
                    bid = now + int(shares[delta] * now)
                best = (market, count, max(bid, now))
    return best[0], best[1], best[2], best_each


@inline_jit
def _chances(view: SchemeView, market: int, delta: int, bins: np.ndarray) -> tuple[float, float]:
    """Return (β, ω) of a bid; a market's signal is read with its first delta, and lies in `bins` for the others."""
    if view.table.bids_decide == 0:
        return view.table.cells[BETA, market, 0], view.table.cells[USEFUL_S, market, 0]
    if delta == 0:
        _read(view, market, bins)
    beta, useful_s = outlook(view.table.foresight, delta, bins)
    return beta, useful_s


@inline_jit
def _delta_of(view: SchemeView, price_micros: int, bid_micros: int) -> int:
    """Return the index of the largest bid delta that such a bid has at this price, which is not above it."""
    shares, index = view.table.foresight.shares, 0
    while index + 1 < len(shares) and price_micros + int(shares[index + 1] * price_micros) <= bid_micros:
        index += 1
    return index


@inline_jit
def _cost_per_work(
    view: SchemeView, micros: int, vcpus: int, beta: float, useful_s: float, resize_s: int, others: int, refunded: bool
) -> float:
    setting = view.setting[0]
    each: float = cost_per_work(
        float(micros),
        float(vcpus),
        beta,
        useful_s,
        float(resize_s),
        float(setting.eviction_overhead_s),
        setting.efficiency_ppm / PPM,
        float(others),
        float(setting.reliable_count * setting.reliable_micros),
        refunded,
    )
    return each


@inline_jit
def _working(view: SchemeView, without: int) -> int:
    """Return the vCPUs of what is alive: what lapses works to the end of its hour, and counts in the cap until then."""
    total = 0
    for slot in range(view.moment[0].holds):
        if slot != without:
            total += view.held[slot].vcpus
    return total


@inline_jit
def _read(view: SchemeView, market: int, bins: np.ndarray) -> None:
    """Write the bins of the market's signal; its price was looked up before."""
    fields, values = np.empty(FEATURES), np.empty(FEATURES)
    markets = view.markets
    first, event = markets.facts[market].first, view.followed[market].event
    signal(
        markets.events["at_s"],
        markets.events["micros"],
        markets.areas,
        markets.rises,
        first,
        event,
        view.moment[0].now_s,
        fields,
    )
    features(fields, markets.facts[market].on_demand_micros, values)
    bins_of(view.table.foresight, values, bins)
