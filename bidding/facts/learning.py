"""`MarketKnown` of each market, from its facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proteus_spot.bidding.evictions.fit_capacity import hazard_per_s
from proteus_spot.bidding.evictions.table import DELTAS_MICROS, EvictionTable
from proteus_spot.bidding.facts.grants import GrantOutlook, outlooks
from proteus_spot.bidding.facts.known import DatedFigure, MarketKnown
from proteus_spot.bidding.facts.rebalances import FRESH_S, after_rebalance, elevated
from proteus_spot.bidding.facts.records import MarketFacts, Rebalance, RequestAnswer, Source
from proteus_spot.bidding.facts.survival import Bursts, Survival, bursts, survivals
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.money import Micros

#: Facts of this long ago still count.
REMEMBERED_S = 28 * DAY_S


@dataclass(frozen=True)
class MarketPrices:
    """The prices of markets: the present ones with the time since when they hold, and those on demand by type."""

    present: Mapping[Market, tuple[Micros, int]] = field(default_factory=dict)
    on_demand: Mapping[str, Micros] = field(default_factory=dict)


def known_of(
    facts: MarketFacts, markets: Sequence[Market], now_s: int, prices: MarketPrices | None = None
) -> dict[Market, MarketKnown]:
    """Return what is known of each of `markets` at `now_s`."""
    prices = prices or MarketPrices()
    from_s = now_s - REMEMBERED_S
    answers, lives = facts.answers(markets, from_s), facts.lives(markets, from_s, now_s)
    bands = {band.market: band for band in facts.bands(markets)}
    priors = {market: hazard_per_s(each.band.share()) * HOUR_S for market, each in bands.items()}
    scores = {score.market: score for score in facts.scores(markets, from_s)}  # the newest is the last
    recommended = facts.rebalances(markets, from_s)
    after = after_rebalance(recommended, lives)
    grant, survival, together = outlooks(answers, markets, now_s), survivals(lives, markets, priors), bursts(lives)

    def one(market: Market) -> MarketKnown:
        own = [answer for answer in answers if answer.market == market]
        fresh = [each for each in recommended if each.market == market and each.at_s > now_s - FRESH_S]
        score, band = scores.get(market), bands.get(market)
        price = prices.present.get(market)
        on_demand = prices.on_demand.get(market.instance_type)
        return MarketKnown(
            market=market,
            at_s=now_s,
            grant=grant[market],
            survival=survival[market],
            bursts=together,
            price_micros=None if price is None else DatedFigure(price[0], Source.PRICES, price[1]),
            on_demand_micros=None if on_demand is None else DatedFigure(on_demand, Source.CATALOG),
            share_granted=_share(own),
            score=None if score is None else DatedFigure(score.score, Source.SCORES, score.at_s),
            monthly_share=None if band is None else DatedFigure(band.band.share(), Source.ADVISOR, band.at_s),
            rebalances=_newest(fresh),
            elevated=elevated(survival[market], after) if fresh else None,
            taken_after=None if not after.count else DatedFigure(after.taken / after.count, Source.OWN, after.newest_s),
            refused=(own[-1].code, own[-1].at_s) if own and own[-1].code else None,
        )

    return {market: one(market) for market in markets}


def prior_known(markets: Sequence[Market], now_s: int) -> dict[Market, MarketKnown]:
    """Return what is taken for known of markets of which nothing is known."""
    grants: dict[Market, GrantOutlook] = outlooks((), markets, now_s)
    lives: dict[Market, Survival] = survivals((), markets)
    none: Bursts = bursts(())
    return {market: MarketKnown(market, now_s, grants[market], lives[market], none) for market in markets}


def table_of(known: Mapping[Market, MarketKnown]) -> EvictionTable:
    """Return the survival of a new machine in each market as the paper's table, for policies that take no other form.

    The bid decides nothing: one delta stands for all.
    """
    rows = {market: (_beta_and_median(each.survival_now),) for market, each in known.items()}
    return EvictionTable(DELTAS_MICROS[-1:], rows, bids_decide=False)


def _beta_and_median(survival: Survival) -> tuple[float, float]:
    """Return the probability of a loss within an hour, and the median time to it, given that it comes."""
    beta = 1 - survival.lives(HOUR_S)
    low, high = 0.0, float(HOUR_S)
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - survival.lives(middle) < beta / 2 else (low, middle)
    return beta, high


def _newest(fresh: Sequence[Rebalance]) -> DatedFigure | None:
    return DatedFigure(len(fresh), fresh[-1].source, fresh[-1].at_s) if fresh else None


def _share(own: Sequence[RequestAnswer]) -> DatedFigure | None:
    asked = sum(answer.asked for answer in own)
    if not asked:
        return None
    return DatedFigure(sum(answer.granted for answer in own) / asked, own[-1].source, own[-1].at_s)
