"""Prices, averages and offers of ticks, and the baseline of a single machine."""

from dataclasses import replace

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.offers import (
    Clairvoyant,
    NoEvictions,
    OfferTable,
    PredictorProbabilities,
    TableProbabilities,
)
from proteus_spot.benchmarks.papers.sweeps.simulation.single_spot import SingleChoice, choose, run_single
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import UNKNOWN, sweep_prices
from proteus_spot.bidding.billing import HourlyRefund, PerSecondFirstHourFree
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.evictions.predictors.tabulated import TablePredictor
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.tuning.provisioning.bids import draw_bid
from tests.benchmarks.papers.sweeps.simulation.markets import LARGE, SMALL, TYPES, prices_of, trace, trials_of


def test_each_tick_has_the_price_and_the_mean_of_the_hour_before() -> None:
    prices = prices_of(7200, small=trace((-7200, 1000), (-1800, 2000), (240, 4000)), large=trace((120, 500)))
    assert prices.markets == (LARGE, SMALL)
    small, large = prices.prices_micros[:, 1], prices.prices_micros[:, 0]
    assert small[:3].tolist() == [2000, 2000, 4000]
    assert large[:2].tolist() == [UNKNOWN, 500]
    # Half an hour at 1000 and half at 2000; two minutes later 2 of 1000 have gone out, and 2 of 2000 have come.
    assert prices.averages_micros[:2, 1].tolist() == [1500, (1000 * 1680 + 2000 * 1920) // 3600]
    # The mean of what is known: at its first tick the price itself.
    assert prices.averages_micros[1:3, 0].tolist() == [500, 500]
    assert [prices.tick_index(at_s) for at_s in (0, 1, 120, 121)] == [0, 1, 1, 2]
    assert prices.tick_at_s(3) == 360


def test_prices_need_a_market_a_type_and_a_time() -> None:
    held = prices_of(small=trace((0, 1))).traces
    with pytest.raises(ValueError, match="no market"):
        sweep_prices(held, [], TYPES, 0, 100)
    with pytest.raises(ValueError, match="no tick"):
        sweep_prices(held, [SMALL], TYPES, 100, 100)
    with pytest.raises(KeyError):
        sweep_prices(held, [SMALL], {}, 0, 100)


def test_an_offer_has_the_bid_that_is_drawn_and_the_probability_of_that_bid() -> None:
    prices = prices_of(7200, small=trace((0, 1000)), large=trace((7000, 500)))
    table = EvictionTable((10, 30_000, 60_000), {SMALL: ((0.5, 60.0), (0.25, 60.0), (0.125, 60.0))})
    offers = OfferTable(prices, TableProbabilities(table, prices.markets), seed=3)
    seen = set()
    for decision in range(40):
        offer = offers.at(7, decision)
        assert offer.keys() == {SMALL}  # the other has no price yet
        assert offer[SMALL].price_micros == offer[SMALL].average_micros == 1000
        assert offer[SMALL].bid_micros == draw_bid(3, SMALL, decision, 1000, TYPES["small"].on_demand_micros)
        assert offer[SMALL].p_evicted == table.of_bid(SMALL, offer[SMALL].bid_micros - 1000)[0]
        assert offer[SMALL].on_demand_micros == 100_000
        seen.add(offer[SMALL].p_evicted)
    assert seen == {0.5, 0.25, 0.125}
    assert OfferTable(prices, NoEvictions(), 3).at(0, 0)[SMALL].p_evicted == 0


def test_the_table_answers_as_the_table_itself_does() -> None:
    other = Market("x", "z")
    table = EvictionTable((10, 100), {SMALL: ((0.5, 60.0), (0.25, 60.0))})
    bids = np.array([5, 0, 1005, 1099, 1100, 999])
    markets = [SMALL] * 5 + [other]
    found = TableProbabilities(table, markets).of_bids(0, np.full(6, 1000), bids)
    expected = [table.of_bid(market, int(bid) - 1000)[0] for market, bid in zip(markets[:5], bids[:5], strict=True)]
    assert found.tolist() == [*expected, 0.0]


def test_a_clairvoyant_knows_which_bids_are_evicted_within_the_hour() -> None:
    prices = prices_of(small=trace((0, 1000), (3599, 5000), (3600, 9000)), large=trace((0, 500), (3600, 900)))
    known = Clairvoyant(prices.traces, prices.markets)  # large, small
    bids = np.array([600, 2000])
    assert known.of_bids(0, prices.prices_micros[0], bids).tolist() == [0.0, 1.0]
    assert known.of_bids(0, prices.prices_micros[0], np.array([600, 5000])).tolist() == [0.0, 0.0]
    assert known.of_bids(1, prices.prices_micros[0], bids).tolist() == [1.0, 1.0]


def test_fitted_predictors_answer_for_their_markets() -> None:
    prices = prices_of(small=trace((0, 1000), (3600, 2000)), large=trace((240, 500)))

    class Rising(TablePredictor):
        def predict_proba(self, trace, at_s, limit_micros):  # type: ignore[no-untyped-def]
            return np.array([trace.price_at(at_s[0]) / limit_micros[0]])

    curves = fit_survival(TraceSet({LARGE: trace((0, 500), (7200, 9000))}), TimeWindow(0, 10_800))
    model = PredictorModel("rising", {LARGE: Rising(), SMALL: Rising()}, curves, {})
    both = PredictorProbabilities(model, prices.traces, prices.markets)
    bids = np.array([1000, 4000])
    assert both.of_bids(120, prices.prices_micros[1], bids).tolist() == [0.0, 0.25]
    assert both.of_bids(3600, prices.prices_micros[30], bids).tolist() == [0.5, 0.5]
    one = PredictorProbabilities(replace(model, predictors={SMALL: Rising()}), prices.traces, prices.markets)
    table = 1 - float(curves.survival(LARGE, 500, HOUR_S))
    assert 0 < table < 1
    assert one.of_bids(3600, prices.prices_micros[30], bids).tolist() == [table, 0.5], "without a model: by the curves"


def test_all_trials_on_one_machine_or_each_on_its_own() -> None:
    prices = prices_of(small=trace((0, 36_000)), large=trace((0, 72_000), (5000, 90_000)))
    trials = trials_of([[3.0, 2.0, 1.0]] * 4)
    billing = PerSecondFirstHourFree()
    assert (choose(prices, 0, SingleChoice.CHEAPEST), choose(prices, 0, SingleChoice.FASTEST)) == (SMALL, LARGE)
    series = run_single(trials, prices, billing, 0, SingleChoice.CHEAPEST, in_series=True)
    # 60 s of boot, then 4 trials of 3 steps of 600 s and 10 s for the result: 10 micro-dollars a second.
    assert (series.market, series.completion_s, series.micros) == (SMALL, 60 + 4 * 1810, 10 * (60 + 4 * 1810))
    alone = run_single(trials, prices, billing, 0, SingleChoice.FASTEST, in_series=False)
    assert (alone.market, alone.completion_s, alone.micros) == (LARGE, 60 + 460, 4 * 20 * (60 + 460))
    whole = run_single(trials, prices, HourlyRefund(), 0, SingleChoice.FASTEST, in_series=True)
    assert (whole.completion_s, whole.micros) == (60 + 4 * 460, 72_000)
    with pytest.raises(ValueError, match="no market has a price"):
        choose(prices_of(small=trace((500, 1))), 0, SingleChoice.CHEAPEST)
