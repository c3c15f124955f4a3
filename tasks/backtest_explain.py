"""Why a simulated job bought what it bought: the live policy, asked again with what the job held and saw."""

from collections.abc import Iterable

from bidding.actions import Acquire, Lapse, Renew, Wait
from bidding.backtest.by_engine import RELIABLE, job_model, run_by_engine
from bidding.backtest.schemes import Rule
from bidding.backtest.setting import Setting
from bidding.decisions import Decision, MarketView
from bidding.model import HOUR_S, Allocation, InstanceType, Market, Tier
from bidding.policies import POLICIES, policy
from tasks.backtest_field import Field
from tasks.backtest_spec import BacktestSpec
from tasks.backtest_story import Explainer, Life
from tasks.backtests import Cell, setting_of


def explainer(field: Field, spec: BacktestSpec, cell: Cell, start_s: int) -> Explainer | None:
    """Return what tells the reasons of a scheme that has a live policy of its name; None where it has none.

    Notes
    -----
    The view is rebuilt from what became of the allocations. What the job had decided for an hour that it did not see
    (its end, or an eviction, came first) is not to be told from that: then each answer is tried, and a decision counts
    only if it is what was done. So no reason is told that was not the reason.
    """
    scheme = spec.scheme(cell.scheme)
    setting = setting_of(scheme, spec, field.reference, cell.hours)
    if cell.scheme not in POLICIES or scheme.rule is Rule.NONE or setting.checkpoint_s:
        return None
    (markets,) = field.zones([cell.zone]).values()
    if scheme.rule is not Rule.PROTEUS:  # other policies see more than the view below shows
        return _by_journal(field, cell.scheme, markets, setting, start_s)
    decides = policy(cell.scheme)
    job = job_model(setting)
    reliable = InstanceType(RELIABLE.instance_type, setting.reliable_vcpus, 0.0, setting.reliable_micros)
    types = {**field.types, reliable.name: reliable}

    def view(at_s: int, held: Iterable[Life], lost: Iterable[Life], renewed: bool) -> MarketView:
        footprint, paid_until_s = [], {}
        if setting.reliable_count:
            footprint.append(Allocation("reliable", RELIABLE, setting.reliable_count, start_s, Tier.RELIABLE))
        for life in held:
            until_s = _decided_until_s(life, at_s, setting.renewal_lead_s, renewed)
            if until_s is not None:
                name = f"#{life.number}"
                footprint.append(
                    Allocation(name, life.market, life.count, life.granted_s, Tier.TRANSIENT, life.bid_micros)
                )
                paid_until_s[name] = until_s
        prices = {market: field.traces[market].price_at(at_s) for market in markets}
        return MarketView(
            now_s=at_s,
            job=job,
            prices={market: price for market, price in prices.items() if price is not None},
            types=types,
            footprint=tuple(footprint),
            evictions=field.evictions,
            cooling=frozenset(life.market for life in lost),
            paid_until_s=paid_until_s,
        )

    def explain(at_s: int, bought: Life | None, held: tuple[Life, ...], lost: tuple[Life, ...]) -> Decision | None:
        made = None if bought is None else (bought.market, bought.count, bought.bid_micros)
        for renewed in (True, False):
            decision = decides.acquisition(view(at_s, held, lost, renewed))
            best = decision.chosen
            if (None if best is None else (best.market, best.count, best.bid_micros)) == made:
                return decision
        return None

    return explain


def _by_journal(field: Field, name: str, markets: tuple[Market, ...], setting: Setting, start_s: int) -> Explainer:
    """Return what looks reasons up in the journal of the live engine, which went through the same job.

    A reason counts only where the engine held, and did, what the simulated job did.
    """
    told = run_by_engine(field.traces, markets, field.types, field.evictions, field.foresight, name, setting, start_s)
    reasons: dict[tuple[int, Market | None, int, int], Decision] = {}
    now_s = start_s
    for item in told.journal:
        match item:
            case Acquire():
                reasons[now_s, item.market, item.count, item.bid_micros] = item.decision
            case Wait():
                reasons.setdefault((now_s, None, 0, 0), item.decision)
            case Renew() | Lapse():
                pass
            case _:
                now_s = item.at_s

    lives = [
        (markets[market], count, bid, granted_s, ended_s)
        for granted_s, market, count, bid, ended_s, _ in told.purchases.tolist()
    ]

    def explain(at_s: int, bought: Life | None, held: tuple[Life, ...], lost: tuple[Life, ...]) -> Decision | None:
        theirs = {life[:4] for life in lives if life[3] <= at_s < life[4]}
        ours = {(life.market, life.count, life.bid_micros, life.granted_s) for life in held}
        if bought is None:
            return reasons.get((at_s, None, 0, 0)) if theirs == ours else None
        made = (bought.market, bought.count, bought.bid_micros)
        return reasons.get((at_s, *made)) if theirs == ours | {(*made, at_s)} else None

    return explain


def _decided_until_s(life: Life, at_s: int, lead_s: int, renewed: bool) -> int | None:
    """Return the end of the last hour that was decided for at `at_s`, a decision point; None where it lapses.

    `renewed` is what is taken for decided where nothing that came after it tells.
    """
    end_s = life.granted_s + ((at_s - life.granted_s) // HOUR_S + 1) * HOUR_S
    if at_s < end_s - lead_s:
        return end_s
    if life.ended_s > end_s:
        return end_s + HOUR_S
    if life.ended_s == end_s and not life.evicted:
        return None
    return end_s + HOUR_S if renewed else None
