"""Rule `proteus`: BidBrain as published, equations (1)-(4), by the arithmetic of `bidding.policies.proteus`."""

from proteus_spot.bidding.backtest.eviction_arrays import BETA, USEFUL_S, of_bid
from proteus_spot.bidding.backtest.parameters import PPM, expected_overhead_s
from proteus_spot.bidding.backtest.view import NOTHING, SchemeView, footprint_vcpus, hour_micros, on_sale, price
from proteus_spot.bidding.billing.expected import is_refunded, paid_share
from proteus_spot.bidding.economics import equations
from proteus_spot.bidding.economics.equations import Overheads, expected_cost_usd, expected_hour, weigh
from proteus_spot.bidding.jit import inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies.rules import is_worth_keeping

# rows of the scratch array, after those of the footprint: one column an offer
_OFFER_USD, _OUT = 4, 5


@inline_jit
def acquire(view: SchemeView) -> tuple[int, int, int]:
    """Return (market, instances, bid) of the best market x bid delta if it lowers E of the footprint."""
    setting, scratch = view.setting[0], view.scratch
    left = min(setting.allocation_vcpus, setting.max_spot_vcpus - footprint_vcpus(view))
    if left < 1:
        return NOTHING
    held = _footprint(view, -1)
    best_each, best = _with_last(view, held, 0), NOTHING
    refunded, overheads = is_refunded(setting.billing, True), _overheads(view, setting.resize_overhead_s)
    deltas = len(view.table.deltas_micros)
    offer_usd, out = scratch[_OFFER_USD], scratch[_OUT:]
    for market in range(len(view.markets.facts)):
        now = on_sale(view, market, left)
        if now < 0:
            continue
        vcpu = view.markets.facts[market].vcpus
        count = left // vcpu
        beta, useful_s = view.table.cells[BETA, market], view.table.cells[USEFUL_S, market]
        micros = hour_micros(view, now)
        for delta in range(deltas):
            paid = paid_share(refunded, beta[delta], useful_s[delta], HOUR_S)
            offer_usd[delta] = expected_cost_usd(paid, micros, count, HOUR_S)
        weigh(scratch, held, beta, offer_usd, useful_s, float(count * vcpu), overheads, out)
        for delta in range(deltas):
            if out[equations.EACH, delta] < best_each:
                best_each = out[equations.EACH, delta]
                best = (market, count, now + view.table.deltas_micros[delta])
    return best


@inline_jit
def renews(view: SchemeView, slot: int) -> bool:
    """Return whether the footprint's work costs no more with the allocation's next hour than without it."""
    others = _footprint(view, slot)
    let_go = _with_last(view, others, view.setting[0].resize_overhead_s)
    _hold(view, others, slot, HOUR_S)
    return bool(is_worth_keeping(_with_last(view, others, 0), let_go))


@inline_jit
def _footprint(view: SchemeView, without: int) -> int:
    """Write the columns of what is held until its last decided hour ends, the reliable tier first; return how many.

    The column behind them is that of no allocation at all.
    """
    setting = view.setting[0]
    held = 0
    if setting.reliable_count > 0:
        left_s = HOUR_S - (view.moment[0].now_s - view.moment[0].started_s) % HOUR_S
        vcpus = setting.reliable_count * setting.reliable_vcpus * setting.reliable_works
        _write(view, 0, 0.0, float(HOUR_S), setting.reliable_micros, setting.reliable_count, vcpus, left_s, True)
        held = 1
    for slot in range(view.moment[0].holds):
        if view.held[slot].lapsing == 0 and slot != without:
            _hold(view, held, slot, view.held[slot].paid_until_s - view.moment[0].now_s)
            held += 1
    view.scratch[:_OFFER_USD, held] = 0.0
    return held


@inline_jit
def _hold(view: SchemeView, column: int, slot: int, left_s: int) -> None:
    """Write the column of a held allocation for `left_s` seconds."""
    held = view.held[slot]
    now = price(view, held.market)
    beta, median_s = of_bid(view.table, held.market, held.bid_micros - now)
    first_hour = view.moment[0].now_s + left_s <= held.launched_s + HOUR_S
    refunded = is_refunded(view.setting[0].billing, first_hour)
    _write(view, column, beta, median_s, hour_micros(view, now), held.count, held.vcpus, left_s, refunded)


@inline_jit
def _write(
    view: SchemeView,
    column: int,
    beta: float,
    median_s: float,
    micros: int,
    count: int,
    vcpus: int,
    left_s: int,
    refunded: bool,
) -> None:
    cost_usd, useful_s = expected_hour(beta, median_s, micros, count, left_s, refunded)
    view.scratch[equations.BETA, column] = beta
    view.scratch[equations.COST, column] = cost_usd
    view.scratch[equations.USEFUL_S, column] = useful_s
    view.scratch[equations.RATE, column] = vcpus


@inline_jit
def _with_last(view: SchemeView, held: int, resize_s: int) -> float:
    """Return E of the first `held` columns and the one behind them."""
    scratch = view.scratch
    last, out = scratch[:_OFFER_USD, held : held + 1], scratch[_OUT:]
    beta, usd, useful_s = last[equations.BETA], last[equations.COST], last[equations.USEFUL_S]
    weigh(scratch, held, beta, usd, useful_s, last[equations.RATE, 0], _overheads(view, resize_s), out)
    return float(out[equations.EACH, 0])


@inline_jit
def _overheads(view: SchemeView, resize_s: int) -> Overheads:
    setting = view.setting[0]
    eviction_s = expected_overhead_s(setting.eviction_overhead_s, setting.checkpoint_s, setting.restart_s)
    return Overheads(eviction_s, float(resize_s), setting.efficiency_ppm / PPM)
