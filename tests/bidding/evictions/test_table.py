"""The eviction table, held against a walk over every minute."""

import json
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.table import DELTAS_MICROS, EvictionTable, fit
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet

MARKET = Market("c4.large", "us-east-1a")
OTHER = Market("c4.large", "us-east-1b")
FIVE_CENTS = next(i for i, delta in enumerate(DELTAS_MICROS) if delta > 50_000)


def trace(*events: tuple[int, int]) -> Trace:
    times, prices = zip(*events, strict=True)
    return Trace(np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def walked(prices: Trace, delta: int, from_s: int, until_s: int) -> tuple[float, float] | None:
    """β and the median of one delta, asked minute by minute."""
    grants, taken_s = 0, []
    for at_s in range(from_s, until_s - HOUR_S + 1, 60):
        price = prices.price_at(at_s)
        if price is None:
            continue
        grants += 1
        evicted_s = prices.first_above(price + delta, at_s)
        if evicted_s is not None and evicted_s < at_s + HOUR_S:
            taken_s.append(evicted_s - at_s)
    if not grants:
        return None
    return len(taken_s) / grants, float(median(taken_s)) if taken_s else float(HOUR_S)


def test_there_are_25_deltas_geometric_from_a_hundredth_of_a_cent_to_forty_cents() -> None:
    assert len(DELTAS_MICROS) == 25
    assert (DELTAS_MICROS[0], DELTAS_MICROS[-1]) == (100, 400_000)
    ratios = np.divide(DELTAS_MICROS[1:], DELTAS_MICROS[:-1])
    assert ratios == pytest.approx(4000 ** (1 / 24), rel=0.01)


@settings(deadline=None, max_examples=40)
@given(
    events=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 11_000), st.integers(0, 180).map(lambda minute: 60 * minute)),
            st.sampled_from([20_000, 20_100, 20_101, 21_000, 70_000, 500_000]),
        ),
        min_size=1,
        max_size=12,
    ).map(lambda rows: sorted(rows, key=lambda row: row[0])),
    from_s=st.integers(-90, 4000),
    span_s=st.integers(0, 9000),
)
def test_the_table_is_what_a_walk_over_the_minutes_finds(
    events: list[tuple[int, int]], from_s: int, span_s: int
) -> None:
    prices = trace(*events)
    table = fit(TraceSet({MARKET: prices}), from_s, from_s + span_s)
    for index, delta in enumerate(DELTAS_MICROS):
        expected = walked(prices, delta, from_s, from_s + span_s)
        if expected is None:
            assert table.markets == ()
            continue
        beta, median_s = table.lookup(MARKET, index)
        assert beta == pytest.approx(expected[0], abs=1e-12)
        assert median_s == expected[1]
    betas = [table.lookup(MARKET, index)[0] for index in range(25)] if table.markets else []
    assert betas == sorted(betas, reverse=True), "a higher bid is never taken more often"


def test_one_rise_takes_the_grants_of_the_hour_before_it() -> None:
    """120 grants; a rise of 6 cents at minute 90 takes those of minutes 31 to 89, 1 to 59 minutes later."""
    table = fit(TraceSet({MARKET: trace((0, 20_000), (90 * 60, 80_000))}), 0, 179 * 60)
    beta, median_s = table.lookup(MARKET, 0)
    assert beta == 59 / 120
    assert median_s == 30 * 60
    assert table.lookup(MARKET, FIVE_CENTS) == (59 / 120, 30 * 60.0)
    assert table.lookup(MARKET, 24) == (0.0, 3600.0)


def test_an_even_number_of_evictions_has_the_middle_of_two_as_median() -> None:
    # Grants at 0 and 60; the rise comes 100 and 40 seconds later.
    table = fit(TraceSet({MARKET: trace((0, 20_000), (100, 80_000))}), 0, HOUR_S + 60)
    assert table.lookup(MARKET, 0) == (1.0, 70.0)


def test_a_price_that_equals_the_bid_does_not_take_it() -> None:
    table = fit(TraceSet({MARKET: trace((0, 20_000), (100, 20_000 + DELTAS_MICROS[5]))}), 0, HOUR_S)
    assert [table.lookup(MARKET, index)[0] for index in (4, 5)] == [1.0, 0.0]


def test_an_eviction_on_the_hour_is_not_one_within_it() -> None:
    for at_s, beta in ((HOUR_S - 1, 1.0), (HOUR_S, 0.0)):
        table = fit(TraceSet({MARKET: trace((0, 20_000), (at_s, 900_000))}), 0, HOUR_S)
        assert table.lookup(MARKET, 0)[0] == beta


def test_nothing_after_the_window_is_looked_at() -> None:
    prices = TraceSet({MARKET: trace((0, 20_000), (5000, 80_000), (7201, 900_000))})
    assert fit(prices, 0, 7200) == fit(prices.between(0, 7200), 0, 7200)


def test_a_market_without_a_whole_hour_in_the_window_is_not_known() -> None:
    prices = TraceSet({OTHER: trace((0, 20_000)), MARKET: trace((3601, 20_000))})
    table = fit(prices, 0, 7200)
    assert table.markets == (OTHER,)
    with pytest.raises(KeyError):
        table.lookup(MARKET, 0)
    assert fit(prices, 0, HOUR_S - 1).markets == ()


@pytest.fixture(name="table")
def _table() -> EvictionTable:
    third = (1 / 3, 0.1 + 0.2)
    return EvictionTable((100, 200), {OTHER: (third, (0.0, 3600.0)), MARKET: ((1.0, 59.5), (0.5, 60.0))})


def test_a_table_survives_json_to_the_last_bit(table: EvictionTable) -> None:
    again = EvictionTable.from_json(json.loads(json.dumps(table.to_json(), allow_nan=False)))
    assert again == table
    assert again.markets == (MARKET, OTHER)
    assert hash(again) == hash(table)


def test_a_table_of_a_market_in_which_bids_decide_nothing_says_so(table: EvictionTable) -> None:
    there = EvictionTable(table.deltas_micros, table.rows, bids_decide=False)
    assert there != table
    assert EvictionTable.from_json(there.to_json()) == there


def test_tables_differ_by_what_they_say(table: EvictionTable) -> None:
    assert table != EvictionTable((100, 200), {**table.rows, OTHER: ((0.5, 1.0), (0.0, 3600.0))})
    assert table != EvictionTable((100, 201), table.rows)


def test_a_bid_between_two_deltas_counts_as_the_lower_one(table: EvictionTable) -> None:
    expected = {-1: (1.0, 0.0), 0: (1.0, 59.5), 100: (1.0, 59.5), 199: (1.0, 59.5), 200: (0.5, 60.0), 999: (0.5, 60.0)}
    assert {delta: table.of_bid(MARKET, delta) for delta in expected} == expected


def test_a_market_without_history_counts_as_never_taken(table: EvictionTable) -> None:
    assert table.of_bid(Market("x", "y"), 100) == (0.0, 3600.0)


def test_a_grid_has_the_markets_asked_for_in_their_order(table: EvictionTable) -> None:
    betas, medians = table.grid([OTHER, MARKET])
    assert betas.tolist() == [[1 / 3, 0.0], [1.0, 0.5]]
    assert medians[1].tolist() == [59.5, 60.0]


@pytest.mark.parametrize(
    ("deltas", "row"),
    [
        ((), ()),
        ((200, 100), ((0.5, 1.0), (0.5, 1.0))),
        ((100, 100), ((0.5, 1.0), (0.5, 1.0))),
        ((100,), ((0.5, 1.0), (0.5, 1.0))),
        ((100,), ((1.1, 1.0),)),
        ((100,), ((-0.1, 1.0),)),
        ((100,), ((float("nan"), 1.0),)),
        ((100,), ((0.5, float("inf")),)),
        ((100,), ((0.5, -1.0),)),
    ],
)
def test_what_is_no_table_is_refused(deltas: tuple[int, ...], row: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError):
        EvictionTable(deltas, {MARKET: row})


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"deltas_micros": [100]},
        {"deltas_micros": [100], "markets": []},
        {"deltas_micros": None, "markets": {}},
        {"deltas_micros": [100], "markets": {"c4.large": {"beta": [0.1], "median_tte_s": [1]}}},
        {"deltas_micros": [100], "markets": {"a/b": {"beta": [0.1]}}},
        {"deltas_micros": [100], "markets": {"a/b": {"beta": [0.1], "median_tte_s": [1, 2]}}},
        {"deltas_micros": [100], "markets": {"a/b": {"beta": ["x"], "median_tte_s": [1]}}},
    ],
)
def test_a_record_that_holds_no_table_is_refused(record: dict) -> None:
    with pytest.raises(ValueError):
        EvictionTable.from_json(record)
