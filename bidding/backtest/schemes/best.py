"""Rule `best`: all of the cap in the market whose next hour of work is expected to be cheapest.

A refunded hour is free. So the rule buys where the price, times the probability that the hour must be paid, is lowest
for the expected work; it bids the price itself wherever evictions cost little. The decision is made again at each
hour's end: a kept allocation keeps its old bid, and a price that has fallen since will hardly pass it any more.

Source: BidBrain's cost per work (Proteus, EuroSys 2017, section 4.2), of one purchase instead of the whole footprint.
Differs: chances are those of the market's present signal (`bidding.forecast`), not of its history at large; one large
allocation, since equation (2) charges λ and σ to the whole footprint for every part; what is held is renewed only if
that costs no more than the best fresh purchase. Where bids decide nothing, chances are those of the eviction table, and
the bid is the on-demand price.
"""

import numpy as np

from proteus_spot.bidding.backtest.eviction_arrays import BETA, USEFUL_S
from proteus_spot.bidding.backtest.parameters import PPM
from proteus_spot.bidding.backtest.view import NOTHING, SchemeView, hour_micros, on_sale, price
from proteus_spot.bidding.billing.expected import is_refunded
from proteus_spot.bidding.economics.equations import EACH, cost_per_work
from proteus_spot.bidding.economics.hour_value import Surroundings, cost_and_work, weigh_hour
from proteus_spot.bidding.forecast.features import FEATURES, features, signal
from proteus_spot.bidding.forecast.forecast_model import outlooks
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.policies.rules import HourEndRule, fresh_delta_micros, held_delta, hour_end, is_worth_keeping

# rows of the scratch array: one column a bid delta
_BETA, _USEFUL, _OUT = range(3)
_WEIGHED, _PASSED = int(HourEndRule.WEIGHED), int(HourEndRule.PASSED)


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of the purchase with the cheapest work, as large as the cap allows."""
    market, count, bid, _ = _best(view, -1)
    return market, count, bid


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return whether the allocation is kept: if its work costs no more than the best fresh purchase's.

    If its next hour may be refunded and the price has fallen since the bid, a fresh bid is better. An allocation whose
    bid the price has passed is kept: the market is taking it, and refunds the hour unless it is terminated first.
    """
    setting, held = view.setting[0], view.held[slot]
    now, facts = price(view, held.market), view.markets.facts[held.market]
    refunded, decides = is_refunded(setting.billing, False), view.table.bids_decide == 1
    end = hour_end(now, held.bid_micros, facts.on_demand_micros, refunded, decides, setting.ceiling == 1)
    if end != _WEIGHED:
        return bool(end == _PASSED)
    _chances(view, held.market)
    delta = held_delta(view.table.foresight.shares, now, held.bid_micros) if decides else 0
    beta, useful_s = view.scratch[_BETA, delta], view.scratch[_USEFUL, delta]
    micros, around = float(hour_micros(view, now) * held.count), _surroundings(view, 0, _working(view, slot), refunded)
    cost, work = cost_and_work(micros, float(held.vcpus), beta, useful_s, around)
    return bool(is_worth_keeping(cost_per_work(cost, work), _best(view, slot)[3]))


@inline_jit
def _best(view: SchemeView, without: int) -> tuple[int, int, int, float]:
    """Return (market, instances, bid, cost per work) of the best purchase, as if the slot `without` were empty."""
    setting, scratch = view.setting[0], view.scratch
    others = _working(view, without)
    left = min(setting.allocation_vcpus, setting.max_spot_vcpus - others)
    refunded, decides = is_refunded(setting.billing, True), view.table.bids_decide == 1
    best, best_each = NOTHING, np.inf
    shares = view.table.foresight.shares
    bids = len(shares) if decides else 1
    around = _surroundings(view, setting.resize_overhead_s, others, refunded)
    beta, useful_s, out = scratch[_BETA, :bids], scratch[_USEFUL, :bids], scratch[_OUT:]
    for market in range(len(view.markets.facts)):
        now = on_sale(view, market, left)
        if now < 0:
            continue
        facts = view.markets.facts[market]
        count = left // facts.vcpus
        _chances(view, market)
        micros, vcpus = float(hour_micros(view, now) * count), float(count * facts.vcpus)
        weigh_hour(micros, vcpus, beta, useful_s, around, out)
        for delta in range(bids):
            if out[EACH, delta] < best_each:
                best_each = out[EACH, delta]
                share = shares[delta] if decides else 0.0
                best = (market, count, now + fresh_delta_micros(share, now, facts.on_demand_micros, decides))
    return best[0], best[1], best[2], best_each


@inline_jit
def _surroundings(view: SchemeView, resize_s: int, others: int, refunded: bool) -> Surroundings:
    setting = view.setting[0]
    return Surroundings(
        float(resize_s),
        float(setting.eviction_overhead_s),
        setting.efficiency_ppm / PPM,
        float(others),
        float(setting.reliable_count * setting.reliable_micros),
        refunded,
    )


@inline_jit
def _chances(view: SchemeView, market: int) -> None:
    """Write (β, ω) of each bid; the market's price was looked up before."""
    beta, useful_s = view.scratch[_BETA], view.scratch[_USEFUL]
    if view.table.bids_decide == 0:
        beta[0], useful_s[0] = view.table.cells[BETA, market, 0], view.table.cells[USEFUL_S, market, 0]
        return
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
    outlooks(view.table.foresight, values, beta, useful_s)


@inline_jit
def _working(view: SchemeView, without: int) -> int:
    """Return the vCPUs of the live allocations: a lapsing one works, and counts in the cap, to the end of its hour."""
    total = 0
    for slot in range(view.moment[0].holds):
        if slot != without:
            total += view.held[slot].vcpus
    return total
