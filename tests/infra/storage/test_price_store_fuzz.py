"""A price store of which a file was damaged: it is read, or refused in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from proteus_spot.bidding.market.model import Market, PricePoint
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.storage.blobs import Blobs, DamagedSet
from proteus_spot.infra.storage.price_store import PriceStore
from tests.support.mutations import at_most, damaged, reads_or_refuses

A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    """A store of two segments."""
    made = PriceStore(Blobs(tmp_path.as_uri()))
    for begin_s in (0, 100):
        points = [PricePoint(market, begin_s + at_s, 20_000 + at_s) for market in (A, B) for at_s in range(0, 100, 10)]
        made.add(points, [A, B], (begin_s, begin_s + 100), "test", begin_s + 100)
    return made


def used(store: PriceStore) -> None:
    """Do with the store what jobs and the ingestion do."""
    store.observed_until_s(A)
    store.read([A, B], 0, 200)


def _fuzz(store: PriceStore, path: Path, examples: int) -> None:
    whole = path.read_bytes()

    @seed(28)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=damaged({"whole": whole}))
    def check(data: bytes) -> None:
        reads_or_refuses(lambda _: used(store), path, data, ProteusError)

    with at_most(300_000_000):
        check()


FILES: dict[str, Callable[[Path], Path]] = {
    "index": lambda folder: folder / "prices" / "index.json",
    "segment": lambda folder: min((folder / "prices").glob("*.parquet")),
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_the_store_is_refused_in_one_line(name: str, store: PriceStore, tmp_path: Path) -> None:
    _fuzz(store, FILES[name](tmp_path), 80)


@pytest.mark.storm
@pytest.mark.parametrize("name", FILES)
def test_thousands_of_damaged_files_of_the_store(name: str, store: PriceStore, tmp_path: Path) -> None:
    _fuzz(store, FILES[name](tmp_path), 5_000)


def test_a_segment_with_one_wrong_byte_is_not_read_as_prices(store: PriceStore, tmp_path: Path) -> None:
    path = FILES["segment"](tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(DamagedSet, match=r"is not what was written \(its digest differs\); restore it from a copy"):
        store.read([A], 0, 200)
