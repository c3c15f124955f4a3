"""Every reader of a market file on damaged ones: it returns values or refuses in one line, within bounded memory."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, seed, settings

from proteus_spot.bidding.evictions.fit_conditioned import fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.market_data.aws_price_list import read_price_list
from proteus_spot.infra.market_data.capacity_files import read_advisor, read_availability
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.eviction_model_files import read_model, write_model
from proteus_spot.infra.market_data.price_files import read_prices, write_prices
from proteus_spot.infra.market_data.request_files import read_requests
from proteus_spot.studies.market_data.trace_summary import describe
from tests.infra.market_data import test_aws_price_list as price_lists
from tests.infra.market_data import test_price_formats as formats
from tests.support.mutations import at_most, damaged, reads_or_refuses

T0 = 1_459_513_800  # 2016-04-01T12:30:00Z
A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-west-2b")
TRACES = TraceSet(
    {
        A: Trace(T0 + 600 * np.arange(12), 20_000 + 1000 * (np.arange(12) % 5)),
        B: Trace(T0 + 900 * np.arange(9), 30_000 + 500 * (np.arange(9) % 4)),
    }
)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, dict[str, bytes]]:
    """Valid files, by reader and by form."""
    folder = tmp_path_factory.mktemp("seeds")

    def written(write: Callable[[Path], None], name: str) -> bytes:
        write(folder / name)
        return (folder / name).read_bytes()

    prices = {
        f"p{end}": written(lambda path: write_prices(path, TRACES), f"p{end}") for end in (".csv", ".parquet", ".json")
    }
    entries = formats.NEWEST_FIRST
    lines = ["\t".join(["SPOTPRICEHISTORY", *formats.text_line(each)]) for each in entries]
    prices |= {
        "list": json.dumps(entries, indent=1).encode(),
        "lines": "\n".join(map(json.dumps, entries)).encode(),
        "numbers": json.dumps([{**each, "SpotPrice": 0.1} for each in entries]).encode(),
        "text": ("\n".join(lines) + "\nNEXTTOKEN\tx\n").encode(),
        "aws names": b"Timestamp,InstanceType,AvailabilityZone,ProductDescription,SpotPrice,currency\n"
        b"2016-04-01T12:30:00Z,c4.large,us-east-1a,Linux/UNIX,0.03,USD\n",
    }
    offers = [price_lists.machine(), price_lists.machine(instanceType="m4.large", price="0.2")]
    windows = TimeWindow(T0, T0 + 7000)
    bands = {"ranges": [{"index": 0, "max": 5}, {"index": 1, "max": 100}]}
    advisor = bands | {"spot_advisor": {"us-east-1": {"Linux": {"c4.large": {"s": 70, "r": 1}}}}}
    return {
        "prices": prices,
        "catalogue": {
            "csv": b"instance_type,region,vcpu,memory_gib,on_demand_usd_per_h,from_date\n"
            b"c4.large,us-east-1,2,3.75,0.105,\n"
            b"c4.large,us-east-1,2,3.75,0.1,2016-12-01\nm4.large,us-west-2,2,8,0.12,2015-06-11\n"
        },
        "price list": {"csv": price_lists.as_csv(offers).encode(), "json": price_lists.as_json(offers).encode()},
        "advisor": {"json": json.dumps(advisor).encode()},
        "availability": {"json": json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 0, 1, 4, 0]}).encode()},
        "requests": {
            "csv": b"type,zone,count,bid,at,until,hours\nc4.large,us-east-1a,4,0.05,2016-04-01T12:30:00Z,,2\n",
            "json": b'{"type": "c4.large", "zone": "us-east-1a", "count": 4, "bid": 0.05, '
            b'"at": "2016-04-01T12:30:00Z", "hours": 2}\n',
        },
        "eviction model": {
            "survival": written(lambda path: write_model(path, fit_survival(TRACES, windows)), "s.npz"),
            "conditioned": written(lambda path: write_model(path, fit_conditioned(TRACES, windows)), "c.npz"),
        },
    }


def _prices(path: Path) -> None:
    describe("p", read_prices(path), read_catalog())


def _catalogue(path: Path) -> None:
    found = read_catalog(path)
    for market in (A, B):
        found.find(market, date(2016, 4, 1))


READERS: Mapping[str, Callable[[Path], Any]] = {
    "prices": _prices,
    "catalogue": _catalogue,
    "price list": read_price_list,
    "advisor": read_advisor,
    "availability": read_availability,
    "requests": lambda path: read_requests(path, (A, B), "p.csv"),
    "eviction model": lambda path: [read_model(path).survival(market, 1_000, HOUR_S) for market in (A, B)],
}
#: Beside what a reader holds anyway.
_MOST_BYTES = 300_000_000


def _fuzz(reader: str, seeds: Mapping[str, dict[str, bytes]], folder: Path, examples: int) -> None:
    path = folder / "fuzzed"
    for data in seeds[reader].values():
        path.write_bytes(data)
        READERS[reader](path)

    @seed(28)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=damaged(seeds[reader]))
    def check(data: bytes) -> None:
        reads_or_refuses(READERS[reader], path, data)

    with at_most(_MOST_BYTES):
        check()


@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    reader: str, seeds: Mapping[str, dict[str, bytes]], tmp_path: Path
) -> None:
    _fuzz(reader, seeds, tmp_path, 150)


@pytest.mark.storm
@pytest.mark.parametrize("reader", READERS)
def test_ten_thousand_damaged_files(reader: str, seeds: Mapping[str, dict[str, bytes]], tmp_path: Path) -> None:
    _fuzz(reader, seeds, tmp_path, 10_000)


# Small files that claim to be large


def _parquet_of_one_value(rows: int) -> bytes:
    """Return a Parquet file of so many equal rows: a few bytes each thousand."""
    columns = {
        "timestamp": pa.array(np.full(rows, T0 * 1_000_000), pa.timestamp("us", tz="UTC")),
        **{
            name: pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
            for name, text in (("instance_type", "c4.large"), ("az", "us-east-1a"), ("product", "Linux/UNIX"))
        },
        "price": pa.array(np.full(rows, 0.1)),
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def _npz_that_claims(shape: tuple[int, ...]) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": shape})
    sink = io.BytesIO()
    np.savez(sink, header=np.zeros(3))
    with zipfile.ZipFile(sink, "a") as archive:
        archive.writestr("survival.npy", head.getvalue())
    return sink.getvalue()


BOMBS: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "zeros, as prices": ("prices", lambda: gzip.compress(bytes(400_000_000))),
    "zeros, as a catalogue": ("catalogue", lambda: gzip.compress(bytes(10_000_000))),
    "a Parquet file of equal rows": ("prices", lambda: _parquet_of_one_value(4_000_000)),
    "a model that claims an array": ("eviction model", lambda: _npz_that_claims((10**7, 10**4))),
    "times of centuries": (
        "prices",
        lambda: (
            b"timestamp,instance_type,az,product,price\n"
            + b"".join(b"%04d-01-01T00:00:00Z,c4.large,us-east-1a,Linux/UNIX,0.1\n" % year for year in range(1, 9999))
        ),
    ),
    "an availability trace of ages": (
        "availability",
        lambda: json.dumps({"metadata": {"gap_seconds": 10**17}, "data": [1] * 1000}).encode(),
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_claims_to_be_large_takes_little_memory(bomb: str, tmp_path: Path) -> None:
    reader, make = BOMBS[bomb]
    data = make()
    with at_most(_MOST_BYTES):
        assert reads_or_refuses(READERS[reader], tmp_path / "bomb", data) is None
