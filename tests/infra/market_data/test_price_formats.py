"""The other forms of price files: Parquet, and the JSON of the aws command."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.market_data.price_files import read_prices, write_prices
from tests.support.price_rows import refusal, trace

T0 = 1_459_513_800  # 2016-04-01T12:30:00Z
A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")


# What the aws command prints


def entry(**changes: Any) -> dict[str, Any]:
    made = {
        "AvailabilityZone": "us-east-1a",
        "InstanceType": "c4.large",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.032400",
        "Timestamp": "2016-04-01T12:30:00+00:00",
        **changes,
    }
    return {name: value for name, value in made.items() if value is not ...}


def page(*entries: dict[str, Any], **more: Any) -> str:
    return json.dumps({"SpotPriceHistory": entries, **more}, indent=4)


def text_line(each: dict[str, Any]) -> list[str]:
    names = ("AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp")
    return [each[name] for name in names]


NEWEST_FIRST = (
    entry(Timestamp="2016-04-01T12:32:00.000Z", SpotPrice="0.05"),
    entry(InstanceType="m4.large", AvailabilityZone="us-east-1b", AvailabilityZoneId="use1-az2", SpotPrice="0.01"),
    entry(SpotPrice="0.2"),
    entry(SpotPrice="0.1"),
)
READ = TraceSet({A: trace((T0, 200_000), (T0 + 120, 50_000)), B: trace((T0, 10_000))})


@pytest.mark.parametrize(
    "text",
    [
        page(*NEWEST_FIRST),
        json.dumps({"SpotPriceHistory": NEWEST_FIRST, "NextToken": ""}),
        page(*NEWEST_FIRST[:2], NextToken="x") + "\n" + page(*NEWEST_FIRST[2:]) + "\n",
        page(*NEWEST_FIRST[:3], NextToken="x") + page(*NEWEST_FIRST[3:]),
        page(*NEWEST_FIRST) + page(),
        page(*NEWEST_FIRST, *NEWEST_FIRST),
        "\n " + page(*NEWEST_FIRST),
        "\ufeff" + page(*NEWEST_FIRST),
        json.dumps(NEWEST_FIRST, indent=4),
        json.dumps([{**each, "SpotPrice": float(each["SpotPrice"])} for each in NEWEST_FIRST]),
        json.dumps([{**each, "Timestamp": each["Timestamp"].replace("T", " ")} for each in NEWEST_FIRST]),
        page(*({**each, "SpotPrice": float(each["SpotPrice"])} for each in NEWEST_FIRST)),
        "".join(json.dumps(each) + "\n" for each in NEWEST_FIRST),
        "".join(json.dumps({**each, "SpotPrice": float(each["SpotPrice"])}) + "\n" for each in NEWEST_FIRST),
        "".join("\t".join(["SPOTPRICEHISTORY", *text_line(each)]) + "\n" for each in NEWEST_FIRST) + "NEXTTOKEN\tabc\n",
    ],
    ids=[
        *("indented", "one line", "two pages", "two glued", "an empty page", "overlap", "space before", "mark"),
        *(
            "list",
            "list of numbers",
            "as boto3 prints times",
            "numbers",
            "entry a line",
            "number a line",
            "text output",
        ),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_the_history_of_the_aws_command_is_sorted_on_reading(
    tmp_path: Path, text: str, zipped: bool, encoding: str
) -> None:
    data = text.removeprefix("\ufeff" if encoding != "utf-8" else "").encode(encoding)
    (tmp_path / "history").write_bytes(gzip.compress(data) if zipped else data)
    assert read_prices(tmp_path / "history") == READ


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"row 1: is not JSON"),
        (page(*NEWEST_FIRST)[:-30], r"row \d+: is not JSON"),
        (page(*NEWEST_FIRST) + "\nthe end", r"row 34: is not JSON"),
        ('{"Reservations": []}', "is JSON and no price history"),
        (page(entry()) + '{"Reservations": []}', "is JSON and no price history"),
        ("[1, 2]", "entry 1: is not an object"),
        (json.dumps([entry(), 7]), "entry 2: is not an object"),
        (json.dumps(entry()) + "\n" + json.dumps(entry(SpotPrice=...)), "entry 2: has no SpotPrice"),
        (json.dumps(entry()) + "\n" + page(entry()), "is JSON and no price history|a page has no"),
        ("[" * 5000, "row 1: is not JSON|is JSON and no price history"),
        ('{"SpotPriceHistory": {}}', "is JSON and no price history"),
        (page(), "has no rows"),
        ('{"SpotPriceHistory": [7]}', "entry 1: is not an object"),
        (page(entry(), entry(SpotPrice=0.0324)), "entry 2: SpotPrice is a number, among texts; write all"),
        (page(entry(SpotPrice=0.0324), entry()), "entry 2: SpotPrice is a text, among numbers; write all"),
        (page(entry(), entry(SpotPrice=True)), "entry 2: SpotPrice is true; want a text"),
        (page(entry(), entry(Timestamp=1459513800000)), "entry 2: Timestamp is 1459513800000; want a text"),
        (page(entry()) + page(entry(SpotPrice=...)), "entry 2: has no SpotPrice"),
        (page(entry(), entry(Timestamp=None)), "entry 2: has no Timestamp"),
        (page(entry(), entry(Timestamp="2016-04-01T12:30:00")), "entry 2: the time '.*' has no zone"),
        (page(*[entry()] * 9, entry(Timestamp="soon"), entry()), "entry 10: 'soon' is not a time"),
        (page(*[entry()] * 6, entry(SpotPrice="free")), "entry 7: 'free' is not a price"),
        (page(entry(), entry(SpotPrice="")), "entry 2: '' is not a price"),
        (page(entry(), entry(SpotPrice="-1")), "entry 2: a price of -1"),
        (page(entry(), entry(SpotPrice="inf")), "entry 2: a price of inf"),
        (page(entry(), entry(InstanceType="")), "entry 2: '' is not an instance_type"),
        (page(entry(), entry(ProductDescription="Windows")), "products .* and .*--product"),
    ],
)
def test_a_bad_history_is_refused_with_its_entry(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "history.json").write_text(text)
    message = refusal(tmp_path / "history.json")
    assert re.search(said, message), message


def test_entries_that_come_oldest_first_are_read_so(tmp_path: Path) -> None:
    lines = [entry(SpotPrice="0.1"), entry(SpotPrice="0.2"), NEWEST_FIRST[0]]
    (tmp_path / "h").write_text("\n".join(map(json.dumps, lines)))
    assert read_prices(tmp_path / "h")[A] == READ[A], "of two prices in one second the later one counts"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("SPOTPRICEHISTORY\tus-east-1a\tc4.large", "row 3: has 3 columns where there must be 6"),
        ("\t".join(["SPOTPRICEHISTORY", *text_line(entry(Timestamp="soon"))]), "row 3: 'soon' is not a time"),
        ("\t".join(["SPOTPRICEHISTORY", *text_line(entry(SpotPrice="-1"))]), "row 3: a price of -1"),
    ],
)
def test_a_bad_line_of_the_text_output_is_refused_with_its_row(tmp_path: Path, line: str, said: str) -> None:
    good = "\t".join(["SPOTPRICEHISTORY", *text_line(entry())])
    (tmp_path / "h.txt").write_text(f"{good}\nNEXTTOKEN\tabc\n{line}\n{good}\n")
    assert said in refusal(tmp_path / "h.txt")


def test_a_history_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_bytes(page(entry()).encode().replace(b"c4", b"\xff4"))
    assert "UTF-8" in refusal(tmp_path / "history.json")
    (tmp_path / "history.json").write_bytes(gzip.compress(page(*NEWEST_FIRST).encode())[:-9])
    assert "cut short" in refusal(tmp_path / "history.json")


def test_what_is_written_is_what_the_aws_command_prints(tmp_path: Path) -> None:
    write_prices(tmp_path / "h.json", READ)
    document = json.loads((tmp_path / "h.json").read_text())
    assert list(document) == ["SpotPriceHistory"]
    assert document["SpotPriceHistory"][0] == entry(Timestamp="2016-04-01T12:32:00Z", SpotPrice="0.050000")
    times = [each["Timestamp"] for each in document["SpotPriceHistory"]]
    assert times == sorted(times, reverse=True)


# Parquet

COLUMNS: dict[str, Any] = {
    "timestamp": pa.array([T0, T0 + 60], pa.timestamp("s", tz="UTC")),
    "instance_type": pa.array(["c4.large"] * 2),
    "az": pa.array(["us-east-1a"] * 2),
    "product": pa.array(["Linux/UNIX"] * 2),
    "price": pa.array([0.0324, 0.05]),
}
TWO = TraceSet({A: trace((T0, 32_400), (T0 + 60, 50_000))})


def parquet(path: Path, **changes: Any) -> Path:
    pq.write_table(
        pa.table({name: column for name, column in {**COLUMNS, **changes}.items() if column is not ...}), path
    )
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"timestamp": pa.array([T0 * 10**9 + 7, (T0 + 60) * 10**9], pa.timestamp("ns", tz="Europe/Berlin"))},
        {"timestamp": pa.array(["2016-04-01T12:30:00Z", "2016-04-01T14:31:00+02:00"])},
        {"instance_type": COLUMNS["instance_type"].dictionary_encode(), "az": COLUMNS["az"].cast(pa.large_string())},
        {"price": COLUMNS["price"].cast(pa.decimal128(9, 4))},
        {"price": pa.array(["0.0324", "0.05"])},
        {"source": pa.array(["x", "y"]), "observed_at": COLUMNS["timestamp"]},
    ],
    ids=["plain", "other unit and zone", "times as text", "dictionaries", "decimals", "prices as text", "more columns"],
)
def test_parquet_of_the_same_columns_is_read(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert read_prices(parquet(tmp_path / "p", **changes)) == TWO


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"price": ..., "az": ...}, "lacks az, price"),
        ({"timestamp": pa.array([T0, T0], pa.timestamp("s"))}, "row 1: .*no zone"),
        ({"timestamp": pa.array([T0, T0])}, f"row 1: '{T0}' is not a time"),
        ({"timestamp": pa.array([T0, None], pa.timestamp("s", tz="UTC"))}, "row 2: no time"),
        (
            {"timestamp": pa.array([-62_135_596_800, T0], pa.timestamp("s", tz="UTC"))},
            "row 1: the time 0001-01-01T00:00:00Z is years away from the others",
        ),
        ({"timestamp": pa.array([T0 * 1000, 2**62], pa.timestamp("ms", tz="UTC"))}, "row 2: .* is not a time"),
        (
            {"timestamp": pa.array([T0, T0 + 1], pa.timestamp("us", tz="UTC"))},
            "row 1: the time 1970-01-01T00:24:19Z is not of 2000 to 2200; fix the year, or the unit",
        ),
        ({"price": pa.array([0.1, None])}, "row 2: no price"),
        ({"price": pa.array([0.1, float("nan")])}, "row 2: a price of nan"),
        ({"price": pa.array(["0.1", "free"])}, "row 2: 'free' is not a price"),
        ({"price": pa.array([[0.1], [0.2]])}, "row 1: .* is not a price"),
        ({"az": pa.array(["us-east-1a", None])}, "row 2: '' is not an az"),
        ({"az": pa.array([b"\xff", b"x"])}, "row 1: .* is not an az"),
        ({"product": pa.array(["Linux/UNIX", None])}, "row 2: no product"),
        ({"currency": pa.array(["USD", "CNY"])}, "row 2: currencies 'CNY' and 'USD'"),
    ],
)
def test_a_bad_parquet_file_is_refused_with_its_row(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    message = refusal(parquet(tmp_path / "p.parquet", **changes))
    assert re.search(said, message), message


def test_a_parquet_file_that_is_empty_or_cut_short_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "p.parquet", **{name: column[:0] for name, column in COLUMNS.items()})
    assert "no rows" in refusal(path)
    path = parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    assert "damaged or cut short" in refusal(path)
    pq.write_table(pa.Table.from_arrays([*COLUMNS.values(), COLUMNS["price"]], [*COLUMNS, "price"]), path)
    assert "has price twice" in refusal(path)
    latin = pa.array(["caf\u00e9".encode("latin-1")] * 2).view(pa.string())
    assert "UTF8" in refusal(parquet(path, az=latin))
