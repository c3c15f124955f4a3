"""Observed prices are stored once each, also after an interruption."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.market.model import Market, PricePoint
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.price_store import _MOST_SEGMENTS, PriceStore

A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")


def points(market: Market, *pairs: tuple[int, int]) -> list[PricePoint]:
    return [PricePoint(market, at_s, price) for at_s, price in pairs]


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path.as_uri())


def test_what_was_added_is_read_back_with_the_price_that_held_before(blobs):
    store = PriceStore(blobs)
    added = store.add(points(A, (10, 32400), (20, 32100)) + points(B, (15, 100)), [A, B], (0, 30), "test", 30)
    assert added == 3
    traces = store.read([A], 15, 30)
    assert list(traces) == [A]
    assert traces[A].price_at(15) == 32400
    assert traces[A].price_at(25) == 32100
    assert store.observed_until_s(B) == 30


def test_the_same_rows_observed_again_are_not_stored_twice(blobs):
    store = PriceStore(blobs)
    store.add(points(A, (10, 1), (20, 2)), [A], (0, 25), "test", 25)
    assert store.add(points(A, (20, 2), (30, 3), (30, 3)), [A], (20, 35), "test", 35) == 1
    assert sum(segment.rows for segment in store.segments()) == 3
    assert store.read([A], 0, 100)[A].times_s.tolist() == [10, 20, 30]


def test_a_run_that_dies_before_the_index_is_written_loses_and_doubles_nothing(blobs, monkeypatch):
    store = PriceStore(blobs)
    store.add(points(A, (10, 1)), [A], (0, 15), "test", 15)
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.add(points(A, (20, 2)), [A], (10, 25), "test", 25)
    assert store.observed_until_s(A) == 15, "what the index does not name is not there"
    assert store.add(points(A, (10, 1), (20, 2)), [A], (10, 25), "test", 25) == 1
    assert store.read([A], 0, 100)[A].times_s.tolist() == [10, 20]


def test_many_segments_become_one_with_the_same_rows(blobs):
    store = PriceStore(blobs)
    for index in range(_MOST_SEGMENTS + 1):
        store.add(points(A, (index, index + 1)), [A], (index, index + 1), "test", index + 1)
    assert len(store.segments()) == 1
    assert store.segments()[0].from_s == 0
    assert store.read([A], 0, 1000)[A].prices_micros.tolist() == list(range(1, _MOST_SEGMENTS + 2))
    assert len([name for name in blobs.list("prices") if name.endswith(".parquet")]) == 1


def test_source_and_time_of_observation_are_kept(blobs):
    store = PriceStore(blobs)
    store.add(points(A, (10, 1)), [A], (0, 15), "ec2.us-east-1", 15)
    row = store._read(store.segments()[0]).to_pylist()[0]
    assert (row["source"], int(row["observed_at"].timestamp())) == ("ec2.us-east-1", 15)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), max_size=8), max_size=5))
def test_any_overlapping_observations_store_each_row_once(tmp_path_factory, batches):
    store = PriceStore(Blobs(tmp_path_factory.mktemp("prices").as_uri()))
    for number, times in enumerate(batches):
        store.add(points(A, *((at_s, at_s + 1) for at_s in times)), [A], (0, 40), "test", number)
    expected = sorted({at_s for times in batches for at_s in times})
    assert sum(segment.rows for segment in store.segments()) == len(expected)
    read = store.read([A], 0, 100)
    assert (read[A].times_s.tolist() if A in read else []) == expected
