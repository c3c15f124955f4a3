"""Price files: exact to the micro-dollar, written atomically, refused in one line; CSV, and what all forms share."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.price_files import PRICE_ENDINGS, check_price_name, read_prices, write_prices
from tests.support.price_rows import HEADER, price_row, refusal, trace

HEAD = f"{HEADER}\n"
T0 = 1_459_513_800  # 2016-04-01T12:30:00Z
A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")


def row(*columns: str, **named: str) -> str:
    return price_row(*columns, **named) + "\n"


PAID = HEAD.replace("price", "price,currency")


def paid(currency: str) -> str:
    return row(price=f"0.0324,{currency}")


# Reading


@pytest.mark.parametrize("name", ["prices.csv", "prices.csv.gz", "no-ending"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_plain_or_packed_whatever_its_name(tmp_path: Path, name: str, packed: bool) -> None:
    text = (
        HEAD + row() + row(kind="m4.large", zone="us-east-1b", price="0.0101") + row("2016-04-01T12:31:00Z", price="1")
    )
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert read_prices(tmp_path / name) == TraceSet(
        {A: trace((T0, 32_400), (T0 + 60, 1_000_000)), B: trace((T0, 10_100))}
    )


def test_markets_may_be_mixed_and_the_last_of_a_second_counts(tmp_path: Path) -> None:
    other = row("2016-04-01T12:29:00Z", kind="m4.large", zone="us-east-1b")
    (tmp_path / "p.csv").write_text(HEAD + row(price="0.1") + other + row(price="0.3") + row(price="0.2"))
    traces = read_prices(tmp_path / "p.csv")
    assert traces[A] == trace((T0, 200_000))
    assert traces[B] == trace((T0 - 60, 32_400))


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + HEAD + row(),
        (HEAD + row()).replace("\n", "\r\n"),
        (HEAD + row()).rstrip("\n"),
        HEAD + row().replace("c4.large", '"c4.large"'),
        "price,product,extra,az,timestamp,instance_type\n0.0324,Linux/UNIX,x,us-east-1a,2016-04-01T12:30:00Z,c4.large\n",
        HEAD + row("2016-04-01T14:30:00+02:00"),
        HEAD + row("2016-04-01 12:30:00.750Z"),
        "Timestamp,InstanceType,AvailabilityZone,ProductDescription,SpotPrice\n" + row(),
        (
            ",AvailabilityZone,price,product,InstanceType,Timestamp\n"
            "0,us-east-1a,0.0324,Linux/UNIX,c4.large,2016-04-01 12:30Z\n"
        ),
    ],
    ids=[
        *("mark", "crlf", "no last newline", "quotes", "other columns", "other zone", "part of a second"),
        *("names of the aws command", "names of both"),
    ],
)
def test_what_other_programs_write_is_read_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.csv").write_text(text, encoding="utf-8", newline="")
    assert read_prices(tmp_path / "p.csv") == TraceSet({A: trace((T0, 32_400))})


@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
def test_a_real_file_is_read_whole() -> None:
    path = Path(os.environ["PROTEUS_TRACES"]) / "us-east-1-2016-spring.csv.gz"
    traces = read_prices(path)
    assert len(traces) == 50
    first: dict[str, str] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            _, kind, zone, _, price = line.strip().split(",")
            first.setdefault(f"{kind}/{zone}", price)
    for market, prices in traces.items():
        assert prices.prices_micros[0] == round(float(first[str(market)]) * 1e6)


# What is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (HEAD, "no rows"),
        ("timestamp,instance_type,az,product\n", "lacks price"),
        ("a\n1\n", "lacks timestamp, instance_type, az, product, price"),
        (HEAD + row() + row("2016-13-01T00:00:00Z"), "row 3: '2016-13-01T00:00:00Z' is not a time"),
        (HEAD + row("2016-04-01T12:30:00"), "row 2: the time '2016-04-01T12:30:00' has no zone"),
        (HEAD + row() + row("yesterday"), "row 3: 'yesterday' is not a time"),
        (HEAD + row() + "\n\n" + row("yesterday"), "row 5: 'yesterday' is not a time"),
        (HEAD + "\n" + row() + "\n" + row(price="-1"), "row 5: a price of -1"),
        (HEAD + row() + HEAD + row(), "row 3: is the header once more"),
        (HEAD.replace("price", "price,price") + row(price="1,1"), "header .row 1. has price twice"),
        (HEAD + row(price="$0.03"), "row 2: '.0.03' is not a price"),
        (HEAD + row().replace("Linux/UNIX", ""), "row 2: no product"),
        (HEAD + row() + row().replace("Linux/UNIX", ""), "row 3: no product"),
        (PAID + paid("USD") + paid("EUR"), "row 3: currencies 'EUR' and 'USD'"),
        (PAID + paid("EUR") + paid("EUR"), "row 2: currency 'EUR';"),
        (HEAD + row(kind="c4.large "), "row 2: 'c4.large ' is not an instance_type"),
        (HEAD + row(""), "row 2: .*time"),
        (HEAD + row() + row(price="abc"), "row 3: 'abc' is not a price"),
        (HEAD + row() + row(price=""), "row 3: no price"),
        (HEAD + row(price="-1"), "row 2: a price of -1"),
        (HEAD + row(price="0"), "row 2: a price of 0"),
        (HEAD + row(price="nan"), "row 2: a price of nan"),
        (HEAD + row(price="inf"), "row 2: a price of inf"),
        (HEAD + row(price="1e300"), "row 2: a price of 1e"),
        (HEAD + row(kind=""), "row 2: '' is not an instance_type"),
        (HEAD + row() + row(kind="c4/large"), "row 3: 'c4/large' is not an instance_type"),
        (HEAD + row(zone=""), "row 2: '' is not an az"),
        (HEAD + row() + "2016-04-01T12:30:00Z,c4.large\n", "row 3: has 2 columns where the header has 5"),
        (HEAD + row() + row(kind="m4.large") + row("2016-04-01T13:00:00Z") + row(), "row 5: earlier"),
        (HEAD + row("0001-01-01T00:00:00Z") + row(), "row 2: the time 0001-01-01T00:00:00Z is years away from the oth"),
        (HEAD + row("0001-01-01T00:00:00+14:00") + row(), "row 2: the time 0000-12-31T10:00:00Z is years away"),
        (HEAD + row() + row("9999-12-31T23:59:59Z"), "row 3: the time 9999-12-31T23:59:59Z is years away"),
        (HEAD + row() * 3 + row("2106-04-01T12:30:00Z"), "row 5: the time 2106-04-01T12:30:00Z is years away"),
        (HEAD + row("1970-01-01T00:00:00Z") + row(), "row 2: the time 1970-01-01T00:00:00Z is years away"),
        (HEAD + row("2006-04-01T12:30:00Z") + row() * 3, "row 2: the time 2006-04-01T12:30:00Z is years away"),
        (HEAD + row("1970-01-17T21:24:28Z") * 2, "row 2: the time 1970-01-17T21:24:28Z is not of 2000 to 2200; fix"),
        (HEAD + row("1459513800000"), "row 2: '1459513800000' is not a time"),
        (HEAD + row() + row().replace("Linux/UNIX", "Windows"), "row 3: products 'Windows' and 'Linux/UNIX'"),
    ],
)
def test_a_bad_file_is_refused_with_place_and_mend(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    message = refusal(tmp_path / "p.csv")
    assert re.search(said, message), message
    assert ";" in message, "the fix comes after the fault"


@pytest.mark.parametrize("kept", [20, 0.5, -6, -1], ids=str)
def test_a_packed_file_that_was_cut_short_is_refused(tmp_path: Path, kept: float) -> None:
    noise = np.random.default_rng(0).integers(1, 9999, 3000)
    packed = gzip.compress((HEAD + "".join(row(price=f"0.{cents:04}") for cents in noise)).encode())
    (tmp_path / "p.csv.gz").write_bytes(packed[: int(len(packed) * kept) if kept == 0.5 else int(kept)])
    assert "cut short" in refusal(tmp_path / "p.csv.gz")


def test_a_packed_file_that_was_damaged_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress((HEAD + row() * 50).encode()))
    packed[-8] ^= 1  # its checksum
    (tmp_path / "p.csv.gz").write_bytes(packed)
    assert "damaged" in refusal(tmp_path / "p.csv.gz")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes((HEAD + row()).encode().replace(b"c4", b"\xffc4"))
    assert "UTF-8" in refusal(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_bytes(bytes(range(256)) * 40)
    assert "binary" in refusal(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text(HEAD + row(), encoding="utf-16-le")
    assert "binary" in refusal(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_bytes((HEAD + row()).encode("utf-16")[:-1])
    assert "row 2: is not UTF-16 text, as its mark says; save it as UTF-8" in refusal(tmp_path / "p.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("zipped", [False, True])
def test_text_with_a_byte_order_mark_is_read_as_the_mark_says(tmp_path: Path, encoding: str, zipped: bool) -> None:
    data = (HEAD + row()).replace("\n", "\r\n").encode(encoding)
    (tmp_path / "p.csv").write_bytes(gzip.compress(data) if zipped else data)
    assert read_prices(tmp_path / "p.csv") == TraceSet({A: trace((T0, 32_400))})
    bad = (HEAD + row() + row(price="-1")).encode(encoding)
    (tmp_path / "p.csv").write_bytes(gzip.compress(bad) if zipped else bad)
    assert "row 3: a price of -1" in refusal(tmp_path / "p.csv")


def test_a_file_that_comes_newest_first_is_turned_round(tmp_path: Path) -> None:
    other = row("2016-04-01T12:29:00Z", kind="m4.large", zone="us-east-1b")
    (tmp_path / "p.csv").write_text(HEAD + row("2016-04-01T12:31:00Z") + other + row(price="0.2") + row(price="0.1"))
    traces = read_prices(tmp_path / "p.csv")
    assert traces[A] == trace((T0, 200_000), (T0 + 60, 32_400)), "of two prices in one second the file's first counts"
    assert traces[B] == trace((T0 - 60, 32_400))


def test_the_years_of_a_long_file_may_have_gaps(tmp_path: Path) -> None:
    times = [f"{year}-01-01T00:00:00Z" for year in (2010, 2012, 2014, 2016)]
    (tmp_path / "p.csv").write_text(HEAD + "".join(map(row, times)))
    assert len(read_prices(tmp_path / "p.csv")[A]) == 4


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.csv")
    assert "directory" in refusal(tmp_path)


def test_a_type_must_be_in_the_catalogue_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(HEAD + row() + row(kind="z9.huge"))
    kinds = [CatalogRow(InstanceType(name, 2, 4.0, 100_000), "us-east-1") for name in ("c4.large", "z9.huge")]
    assert len(read_prices(tmp_path / "p.csv", catalog=Catalog(kinds))) == 2
    with pytest.raises(InputError, match=r"p\.csv: row 3: instance type z9\.huge is not in the catalogue"):
        read_prices(tmp_path / "p.csv", catalog=Catalog(kinds[:1]))


def test_one_of_several_products_can_be_chosen(tmp_path: Path) -> None:
    dear = row("2016-04-01T12:31:00Z", price="-5").replace("Linux/UNIX", "Windows")
    (tmp_path / "p.csv").write_text(HEAD + row() + dear + row("2016-04-01T12:32:00Z", price="0.05"))
    assert "--product" in refusal(tmp_path / "p.csv")
    assert read_prices(tmp_path / "p.csv", product="Linux/UNIX")[A] == trace((T0, 32_400), (T0 + 120, 50_000))
    with pytest.raises(InputError, match="row 3: a price of -5"):  # the row of the file, not of the choice
        read_prices(tmp_path / "p.csv", product="Windows")
    with pytest.raises(InputError, match="no rows of product 'SUSE'; it has 'Linux/UNIX', 'Windows'"):
        read_prices(tmp_path / "p.csv", product="SUSE")


def test_a_url_is_read_and_written(tmp_path: Path) -> None:
    traces = TraceSet({A: trace((T0, 32_400))})
    for ending in PRICE_ENDINGS:
        url = f"memory://proteus-test-prices/p{ending}"
        write_prices(url, traces)
        assert read_prices(url) == traces
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        read_prices("memory://proteus-test-prices/none.csv")
    with pytest.raises(InputError, match="is a directory"):
        read_prices(tmp_path.as_uri())
    with pytest.raises(InputError, match=r"nosuch://x/p\.csv: cannot be read"):
        read_prices("nosuch://x/p.csv")


# Writing

SETS = st.dictionaries(
    st.builds(
        Market, st.sampled_from(["c4.large", "m4.large", "r3.large"]), st.sampled_from(["us-east-1a", "us-east-1b"])
    ),
    st.dictionaries(st.integers(T0, T0 + 90_000_000), st.integers(1, 10**10), min_size=1, max_size=5).map(
        lambda events: trace(*sorted(events.items()))
    ),
    min_size=1,
).map(TraceSet)


@settings(deadline=None, max_examples=40)
@given(traces=SETS, ending=st.sampled_from(PRICE_ENDINGS), second=st.sampled_from(PRICE_ENDINGS))
def test_every_form_turns_into_every_other_and_back(
    tmp_path_factory: pytest.TempPathFactory, traces: TraceSet, ending: str, second: str
) -> None:
    folder = tmp_path_factory.mktemp("prices")
    write_prices(folder / f"p{ending}", traces)
    write_prices(folder / f"q{second}", read_prices(folder / f"p{ending}"))
    assert read_prices(folder / f"q{second}") == traces
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"\x1f\x8b") == (path.suffix == ".gz")
        assert path.read_bytes().startswith(b"PAR1") == (path.suffix == ".parquet")
    assert sorted(os.listdir(folder)) == [f"p{ending}", f"q{second}"], "nothing is left beside them"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.csv"
    write_prices(path, TraceSet({A: trace((T0, 1))}))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"p\.csv: cannot be written .*No space left"):
        write_prices(path, TraceSet({B: trace((T0, 2))}))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_a_file_cannot_be_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_prices(tmp_path / "none" / "p.csv", TraceSet({A: trace((T0, 1))}))


@pytest.mark.parametrize("name", ["p.csv", "s3://b/p.csv.gz", "p.parquet", "p.json", "p.json.gz"])
def test_the_ending_of_a_name_says_the_form(name: str) -> None:
    check_price_name(name)


@pytest.mark.parametrize("name", ["p", "p.xlsx", "p.parquet.gz", "csv", "p.csv.zip"])
def test_another_ending_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"end it with \.csv, \.csv\.gz, \.parquet"):
        check_price_name(name)
