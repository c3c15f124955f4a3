"""`proteus bill`: what it prints, what it writes for machines, and how it refuses."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proteus_spot.bidding.billing import SPOT_BILLING
from proteus_spot.flows.cli.commands.planning.bill import SHOWN, bill
from proteus_spot.infra.errors import InputError
from tests.support.price_rows import HEADER, price_row

PRICES = "".join(
    f"{line}\n"
    for line in (
        HEADER,
        price_row("2016-04-01T00:00:00Z", price="0.0324"),
        price_row("2016-04-01T01:00:00Z", price="0.03"),
        price_row("2016-04-01T02:30:00Z", price="0.9"),
        price_row("2016-04-01T03:00:00Z", price="0.0001"),
        price_row("2016-04-01T00:00:00Z", "m4.large", price="0.05"),
    )
)
REQUESTS = """type,zone,count,bid,at,until,hours
c4.large,us-east-1a,3,0.05,2016-04-01T00:00:00Z,,20
m4.large,us-east-1a,1,0.05,2016-04-01T00:00:00Z,2016-04-01T01:30:00Z,
m4.large,us-east-1a,1,0.049999,2016-04-01T00:00:00Z,,1
"""
OPTIONS = ("--market", "c4.large/us-east-1a", "--count", "3", "--bid", "0.05", "--at", "2016-04-01T00:00:00Z")
KEYS = ["granted", "evicted_at", "ended_at", "charges", "refunded_usd", "total_usd", "total_prorata_usd", "usable_s"]


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    (tmp_path / "requests.csv").write_text(REQUESTS)
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    return path


def run(prices: Path, *arguments: str | Path) -> Result:
    """Run the verb in this process; what it raises is raised here."""
    return CliRunner().invoke(bill, ["--prices", str(prices), *map(str, arguments)], catch_exceptions=False)


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def test_one_request_is_an_object(prices: Path) -> None:
    found = exact(run(prices, *OPTIONS, "--hours", "20", "--json", "-").stdout)
    assert list(found) == KEYS
    assert found == {
        "granted": True,
        "evicted_at": "2016-04-01T02:30:00Z",
        "ended_at": "2016-04-01T02:30:00Z",
        "charges": [
            {
                "hour_start": f"2016-04-01T0{hour}:00:00Z",
                "price": Decimal(price),
                "amount_usd": 3 * Decimal(price),
                "refunded": hour == 2,
            }
            for hour, price in enumerate(("0.032400", "0.030000", "0.030000"))
        ],
        "refunded_usd": Decimal("0.090000"),
        "total_usd": Decimal("0.187200"),
        "total_prorata_usd": Decimal("0.187200"),
        "usable_s": 9000,
    }


def test_many_requests_are_a_list_in_order(prices: Path) -> None:
    target = prices.with_name("bills.json")
    done = run(prices, "--requests", prices.with_name("requests.csv"), "--json", target)
    assert "3 requests, hourly-refund: 2 granted, 1 evicted" in done.stdout
    first, second, third = exact(target.read_text())
    assert first == exact(run(prices, *OPTIONS, "--hours", "20", "--json", "-").stdout)
    assert (second["total_usd"], second["total_prorata_usd"]) == (Decimal("0.100000"), Decimal("0.075000"))
    assert (second["evicted_at"], second["ended_at"]) == (None, "2016-04-01T01:30:00Z")
    assert third == {
        "granted": False,
        "evicted_at": None,
        "ended_at": None,
        "charges": [],
        **dict.fromkeys(("refunded_usd", "total_usd", "total_prorata_usd"), Decimal("0.000000")),
        "usable_s": 0,
    }
    assert list(first) == list(third) == KEYS


def test_dollars_are_written_without_the_noise_of_floats(prices: Path) -> None:
    text = run(prices, "--requests", prices.with_name("requests.csv"), "--json", "-").stdout
    amounts = re.findall(r'"(?:price|amount_usd|\w+_usd)": ([^,}\n]+)', text)
    assert len(amounts) > 10
    assert all(re.fullmatch(r"\d+\.\d{6}", amount) for amount in amounts)


@pytest.mark.parametrize(
    ("options", "total", "ended"),
    [
        ("--hours 20", "0.187200", "02:30:00"),
        ("--hours 1", "0.097200", "01:00:00"),
        ("--until 2016-04-01T01:30:00Z", "0.187200", "01:30:00"),
        ("--until 2016-04-01T01:30:00Z --hours 1", "0.097200", "01:00:00"),
        ("--hours 1.5 --billing per-second-first-hour-free", "0.142200", "01:30:00"),
        ("--hours 1.5 --billing per-second-first-hour-free --reprice change", "0.142200", "01:30:00"),
        ("--hours 20 --billing flat --flat-price 0.01", "0.075000", "02:30:00"),
        ("--hours 20 --billing flat --flat-price 0.01 --max-life 0.5", "0.015000", "00:30:00"),
    ],
)
def test_ends_and_models_are_chosen_by_options(prices: Path, options: str, total: str, ended: str) -> None:
    found = exact(run(prices, *OPTIONS, *options.split(), "--json", "-").stdout)
    assert (found["total_usd"], found["ended_at"]) == (Decimal(total), f"2016-04-01T{ended}Z")


def test_a_reader_sees_every_hour_and_why_it_ended(prices: Path) -> None:
    lines = run(prices, *OPTIONS, "--hours", "20").stdout.splitlines()
    assert lines[0].startswith("3 x c4.large/us-east-1a, bid $0.050000")
    assert [line.split() for line in lines if line.startswith("3 ")][1:] == [
        ["3", "2016-04-01T02:00:00Z", "$0.030000", "$0.090000", "yes"]
    ]
    assert any(re.match(r"ended +2016-04-01T02:30:00Z \(evicted\)", line) for line in lines)
    assert lines[-1].startswith("the last price known is of 2016-04-01T03:00:00Z")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--bid", "0.0323"), "not granted: the price was $0.032400, above the bid"),
        (("--at", "2016-03-31T23:59:59Z"), "not granted: no price is known before 2016-04-01T00:00:00Z"),
        (("--until", "2016-04-01T00:59:59Z"), "(let go)"),
        (("--hours", "1"), "(window's end)"),
    ],
)
def test_a_reader_is_told_why(prices: Path, changes: tuple[str, str], said: str) -> None:
    assert said in run(prices, *OPTIONS, "--hours", "2", *changes).stdout


def test_of_many_bills_the_first_are_shown(prices: Path) -> None:
    many = prices.with_name("many.csv")
    many.write_text(REQUESTS + REQUESTS.split("\n", 1)[1] * 4)
    done = run(prices, "--requests", many).stdout
    assert len(re.findall(r"^\d+ +\w4\.large", done, re.MULTILINE)) == SHOWN
    assert "... and 5 more; --json FILE has them all" in done
    assert "15 requests, hourly-refund: 10 granted, 5 evicted, usable 20:00:00 (h:mm:ss)" in done


def test_an_endless_bill_is_cut_for_readers_alone(prices: Path) -> None:
    options = ("--market", "m4.large/us-east-1a", "--count", "1", "--bid", "1", "--at", "2016-04-01T00:00:00Z")
    assert "... and 52 hours more" in run(prices, *options, "--hours", "100").stdout
    assert len(exact(run(prices, *options, "--hours", "100", "--json", "-").stdout)["charges"]) == 100


HOURS = (*OPTIONS, "--hours", "1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hours", "1"), r"^--market: is missing; give it, or many requests by --requests FILE"),
        (HOURS[:-4], r"^--at: is missing"),
        (OPTIONS, r"^--until and --hours are both missing; give one of them, or both"),
        ((*HOURS, "--market", "c4.large"), r"^--market: not a market: 'c4.large'"),
        ((*HOURS, "--market", "c4.large/us-east-1b"), r"^--market c4.large/us-east-1b: has no prices in .*prices.csv;"),
        ((*HOURS, "--count", "0"), r"^--count 0: is not a number of instances"),
        ((*HOURS, "--bid", "cheap"), r"^--bid cheap: is not a number; write dollars"),
        ((*HOURS, "--bid", "-1"), r"^--bid -1: is below 0"),
        ((*HOURS, "--bid", "0.0000001"), r"^--bid 0.0000001: has parts of a micro-dollar"),
        ((*HOURS, "--at", "2016-04-01"), r"^--at 2016-04-01: has no zone; write it as 2016-04-01T12:30:00Z"),
        ((*HOURS, "--until", "2016-03-31T00:00:00Z"), r"^--until .*: is before --at 2016-04-01T00:00:00Z"),
        ((*HOURS, "--hours", "0"), r"^--hours 0: is less than a second"),
        ((*HOURS, "--billing", "flat"), r"^--billing flat: needs a price; give --flat-price USD"),
        ((*HOURS, "--flat-price", "1"), r"^--flat-price 1: is for --billing flat, not for hourly-refund"),
        ((*HOURS, "--max-life", "1"), r"^--max-life 1: is for --billing flat"),
        ((*HOURS, "--reprice", "hour"), r"^--reprice hour: is for --billing per-second"),
        ((*HOURS, "--billing", "flat", "--flat-price", "x"), r"^--flat-price x: is not a number"),
        (
            (*HOURS, "--billing", "flat", "--flat-price", "1", "--max-life", "0"),
            r"^--max-life 0: is less than a second",
        ),
        ((*HOURS, "--requests", "{here}/requests.csv"), r"^--market: the requests are in .*; leave it out"),
        (("--requests", "{here}/none.csv"), r"none.csv: there is no such file"),
        (("--requests", "{here}/bad.csv"), r"bad.csv: row 3: bid x: is not a number"),
        ((*HOURS, "--json", "{here}/none/x"), r"--json .*none/x: there is no directory"),
        ((*HOURS, "--product", "Windows"), r"no rows of product 'Windows'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(prices: Path, arguments: tuple[str, ...], said: str) -> None:
    prices.with_name("bad.csv").write_text("\n".join([*REQUESTS.splitlines()[:2], "c4.large,us-east-1a,1,x,y,,1"]))
    before = sorted(prices.parent.iterdir())
    target = () if "--json" in arguments else ("--json", prices.with_name("out.json"))
    with pytest.raises(InputError, match=said) as caught:
        run(prices, *(argument.format(here=prices.parent) for argument in arguments), *target)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert sorted(prices.parent.iterdir()) == before


def test_help_names_every_model() -> None:
    done = CliRunner().invoke(bill, ["--help"], terminal_width=200)
    assert all(name in done.output for name in SPOT_BILLING)
    assert "\n    proteus bill --prices " in done.output, "on a line of its own"
