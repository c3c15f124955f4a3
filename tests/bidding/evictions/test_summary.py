"""A model in figures."""

import pytest

from proteus_spot.bidding.evictions.fit_capacity import Band, of_bands
from proteus_spot.bidding.evictions.fit_conditioned import Conditions, fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import fit_survival, fit_table
from proteus_spot.bidding.evictions.summary import shown_deltas, summary
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from tests.bidding.evictions.naive import MARKET, trace

DAY_S = 86_400
WINDOW = TimeWindow(0, 20 * DAY_S)
#: Ten hours of a low price a day, then a high one.
DAILY = TraceSet(
    {
        MARKET: trace(
            *((day * DAY_S + at_s, price) for day in range(20) for at_s, price in ((0, 20_000), (36_000, 90_000)))
        )
    }
)


def test_bids_are_shown_with_what_becomes_of_them() -> None:
    model = fit_survival(DAILY, WINDOW)
    told = summary(model)
    assert (told.model, told.fitted, told.n_states, told.states) == ("survival", WINDOW, 1, ())
    (market,) = told.markets
    assert (market.market, market.grants) == (str(MARKET), 20 * 1440 - 59)
    bids = {bid.delta_usd: bid for bid in market.bids}
    assert list(bids) == [0, 0.001, 0.01, 0.05, 0.1, 0.4]
    assert bids[0.05].taken_1_h == pytest.approx(20 * 59 / market.grants)
    assert bids[0.05].taken_15_min == pytest.approx(20 * 14 / market.grants)
    assert bids[0.05].median_s == pytest.approx(1800, abs=61)
    assert (bids[0.1].taken_24_h, bids[0.1].median_s) == (0, 3600)
    assert bids[0].taken_24_h == pytest.approx(600 / 1440, abs=0.03)


def test_deltas_are_those_that_a_model_tells_apart() -> None:
    assert shown_deltas(fit_table(DAILY, WINDOW))[:2] == [100, 1000]
    assert shown_deltas(of_bands({MARKET: Band(0, 0.05)})) == [0]
    assert summary(of_bands({MARKET: Band(0, 0.05)})).markets[0].grants == 0


def test_states_are_told_one_condition_at_a_time() -> None:
    conditions = Conditions(levels=(0.3,), ages_s=(7200,), aboves_s=(1, 3600), pool_grants=0, own_grants=0)
    told = summary(fit_conditioned(DAILY, WINDOW, {MARKET: 100_000}, conditions=conditions))
    states = {(state.what.split()[0] + " " + state.what.split()[1], state.bin): state for state in told.states}
    assert [bin_ for what, bin_ in states if what == "time since"] == ["below 2 h", "2 h and more"]
    assert [bin_ for what, bin_ in states if what == "time above"] == ["none", "1 s to 1 h", "1 h to 24 h"]
    assert [bin_ for what, bin_ in states if what == "level of"] == ["1 of 3", "2 of 3", "3 of 3"]
    for what in ("level of", "time since", "time above"):
        assert sum(state.share for (name, _), state in states.items() if name == what) == pytest.approx(1)
    assert states["level of", "1 of 3"].taken_1_h == pytest.approx(59 / 600, abs=0.005), "of ten hours the last"
    assert states["level of", "2 of 3"].taken_1_h == 0
    assert states["level of", "3 of 3"].share == 0, "never above on-demand"
    assert states["time above", "none"].taken_1_h < states["time above", "1 h to 24 h"].taken_1_h
    assert told.to_json()["notes"]["levels"] == [0.3]


def test_a_condition_that_is_not_looked_at_is_not_told() -> None:
    conditions = Conditions(levels=(), aboves_s=())
    told = summary(fit_conditioned(DAILY, WINDOW, conditions=conditions))
    assert [state.bin for state in told.states] == ["below 5 min", "5 min to 20 min", "20 min to 1 h", "1 h and more"]
