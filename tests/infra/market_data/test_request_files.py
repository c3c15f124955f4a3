"""Requests in files: both forms give the same, and every fault names its row."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.billing.bulk_requests import SpotRequest
from proteus_spot.bidding.market.model import Market
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.request_files import (
    OPTIONS,
    REQUEST_COLUMNS,
    amount_micros,
    duration_s,
    read_requests,
)

MARKETS = (Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b"))
NOON = 1_459_512_000  # 2016-04-01T12:00:00Z
HEADER = ",".join(REQUEST_COLUMNS)
ROWS = (
    "c4.large,us-east-1a,4,0.0324,2016-04-01T12:00:00Z,,20",
    "m4.large,us-east-1b,1,.5,2016-04-01T14:00:00.9+02:00,2016-04-01T12:30:00Z,",
    "c4.large,us-east-1a,64,0,2016-04-01T12:00:00Z,2016-04-01T12:00:00Z,0.5",
)
READ = [
    SpotRequest(MARKETS[0], 4, 32_400, NOON, None, NOON + 72_000),
    SpotRequest(MARKETS[1], 1, 500_000, NOON, NOON + 1800, None),
    SpotRequest(MARKETS[0], 64, 0, NOON, NOON, NOON + 1800),
]


def read(path: Path, text: str | bytes) -> list[SpotRequest]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_requests(path, MARKETS, "prices.csv")


def as_json_lines(numbers: bool) -> str:
    lines = []
    for row in ROWS:
        fields: dict[str, Any] = dict(zip(REQUEST_COLUMNS, row.split(","), strict=True))
        if numbers:
            fields["count"], fields["bid"] = int(fields["count"]), float(fields["bid"])
            fields["hours"] = float(fields["hours"]) if fields["hours"] else None
        if not fields["until"]:
            del fields["until"]
        lines.append(json.dumps(fields | {"note": "passed over"}))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join([HEADER, *ROWS]),
        "\ufeff" + "\r\n".join([HEADER, *ROWS]) + "\r\n\r\n",
        gzip.compress("\n".join([HEADER + ",note", *(f"{row},mine" for row in ROWS)]).encode()),
        as_json_lines(numbers=True),
        as_json_lines(numbers=False) + "\n\n",
    ],
)
def test_every_form_is_read_to_the_same(tmp_path: Path, text: str | bytes) -> None:
    assert read(tmp_path / "r", text) == READ


def test_a_bid_is_exact(tmp_path: Path) -> None:
    line = '{"type":"c4.large","zone":"us-east-1a","count":1,"bid":%s,"at":"2016-04-01T12:00:00Z","hours":1}'
    for written, micros in (("0.000001", 1), ("0.100001", 100_001), ("3.24e-2", 32_400), ("999999.999999", 10**12 - 1)):
        assert read(tmp_path / "r", line % written)[0].bid_micros == micros


def row(**changes: str) -> str:
    fields = dict(zip(REQUEST_COLUMNS, ROWS[0].split(","), strict=True)) | changes
    return "\n".join([HEADER, ROWS[1], ",".join(fields.values())])


FAULTS = {
    "empty": (" \n", "r: is empty; give requests, with the columns type,zone"),
    "header alone": (HEADER, "r: has a header and no rows"),
    "columns lack": ("type,zone,bid,at,until\n", "header .row 1. lacks count; the columns are"),
    "no end": ("type,zone,count,bid,at\n", "header .row 1. lacks until; the columns are"),
    "columns twice": (f"{HEADER},bid\n", "has bid twice; keep one"),
    "another number of columns": (f"{HEADER}\n{ROWS[0]},1\n", "row 2: has another number of columns"),
    "quotes": (f'{HEADER}\n"c4.large"x{ROWS[0]}\n', "row 2: .*; fix the row"),
    "not text": (b"type\xff", "row 1: is not UTF-8 text"),
    "no type": (row(type=""), "row 3: type: is missing; give one"),
    "unknown market": (row(zone="us-east-1b"), "row 3: market c4.large/us-east-1b: has no prices in prices.csv; name"),
    "no instances": (row(count="0"), "row 3: count 0: is not a number of instances; give 1 to"),
    "negative count": (row(count="-3"), "row 3: count -3: is not a number"),
    "parts of instances": (row(count="1.5"), "row 3: count 1.5: is not a number"),
    "too many": (row(count="1" * 5000), "row 3: count 1+: is not a number"),
    "bid is a word": (row(bid="cheap"), "row 3: bid cheap: is not a number; write dollars per instance-hour"),
    "bid is none": (row(bid="NaN"), "row 3: bid NaN: is not a number"),
    "bid is endless": (row(bid="inf"), "row 3: bid inf: is not a number"),
    "negative bid": (row(bid="-0.1"), "row 3: bid -0.1: is below 0"),
    "bid of parts": (row(bid="0.0324001"), "row 3: bid 0.0324001: has parts of a micro-dollar; write six places"),
    "huge bid": (row(bid="1e9"), "row 3: bid 1e9: is above .1,000,000 an hour"),
    "bid beyond reason": (row(bid="1e999"), "row 3: bid 1e999: is not a number of sensible size"),
    "no time": (row(at="noon"), "row 3: at noon: is not a time; write it as 2016-04-01T12:30:00Z"),
    "time without zone": (row(at="2016-04-01T12:30:00"), "row 3: at 2016-04-01T12:30:00: has no zone; write it as"),
    "until without zone": (row(until="2016-04-01"), "row 3: until 2016-04-01: has no zone"),
    "until before at": (row(until="2016-04-01T11:59:59Z"), "row 3: until .*: is before at 2016-04-01T12:00:00Z"),
    "until far away": (row(until="2116-04-01T12:00:00Z"), "row 3: until .* more than 20 years away; fix the year"),
    "neither": (row(hours=""), "row 3: until and hours are both missing; give one of them, or both"),
    "hours are a word": (row(hours="many"), "row 3: hours many: is not a number; write hours, as in 2 or 0.5"),
    "no hours": (row(hours="0"), "row 3: hours 0: is less than a second"),
    "negative hours": (row(hours="-1"), "row 3: hours -1: is less than a second"),
    "too many hours": (row(hours="1e6"), "row 3: hours 1e6: is more than 20 years"),
    "no JSON": ('{"type": "c4.large",\n', "row 1: is not JSON .*; write an object on each line"),
    "a list": ('[{"type": "c4.large"}]', "row 1: is not an object; write one on each line, as in {"),
    "a value of another kind": ('{"bid": true}', "row 1: bid is true; write a number or a text"),
    "a missing value": ('{"type": "c4.large", "zone": "us-east-1a", "count": null}', "row 1: count: is missing"),
    "nested": ("[" * 100_000, "row 1: is not JSON .nested too deeply."),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_file_row_and_mend(tmp_path: Path, name: str) -> None:
    text, says = FAULTS[name]
    with pytest.raises(InputError, match=says) as caught:
        read(tmp_path / "r", text)
    assert str(caught.value).startswith(str(tmp_path / "r"))
    assert "\n" not in str(caught.value)


def test_hours_are_rounded_to_the_second_and_dollars_are_not() -> None:
    assert duration_s(OPTIONS, "hours", "0.3333") == 1200
    assert amount_micros(OPTIONS, "bid", "0.10") == 100_000
    with pytest.raises(InputError, match=r"^--bid 1_0: is not a number"):
        amount_micros(OPTIONS, "bid", "1_0")
