"""The figures of a price file against hand-made ones, and files made from a seed."""

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from bidding.market.catalog import Catalog, CatalogRow
from bidding.market.model import DAY_S, HOUR_S, InstanceType, Market
from bidding.market.traces import Trace, TraceSet
from bidding.synthetic.renewal_market import LIVELY, generate
from infra.errors import InputError
from infra.market_data.catalogs import read_catalog
from infra.market_data.price_files import read_prices, write_prices
from tasks.market_data.trace_summary import describe
from tasks.market_data.traces import convert_price_list, convert_prices, generate_file, open_traces

T0 = int(datetime(2016, 4, 1, tzinfo=UTC).timestamp())
A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")


def trace(*events: tuple[float, int]) -> Trace:
    """A trace of (hours since T0, price in thousandths of a dollar)."""
    return Trace(
        np.array([T0 + int(hours * HOUR_S) for hours, _ in events]), np.array([milli * 1000 for _, milli in events])
    )


def catalog(*rows: tuple[str, int, date | None]) -> Catalog:
    return Catalog(CatalogRow(InstanceType(name, 2, 4.0, milli * 1000), day) for name, milli, day in rows)


# Describe


def test_the_figures_are_those_of_a_market_worked_by_hand() -> None:
    # 0 to 2 h at 0.02, to 3 h at 0.2, to 5 h at 0.3, to 6 h at 0.1 (equal is not above), to 10 h at 0.15
    prices = trace((0, 20), (2, 200), (3, 300), (5, 100), (6, 150))
    traces = TraceSet({A: prices, B: trace((4, 10), (10, 10))})
    found = describe("p.csv", traces, catalog(("c4.large", 100, None)))
    assert (found.events, found.from_s, found.until_s) == (7, T0, T0 + 10 * HOUR_S)
    assert (found.silence_s, found.silent_from_s) == (4 * HOUR_S, T0 + 6 * HOUR_S)
    first, second = found.markets
    assert (first.market, first.events, first.from_s, first.until_s) == (str(A), 5, T0, T0 + 6 * HOUR_S)
    assert first.mean_usd == pytest.approx((2 * 0.02 + 0.2 + 2 * 0.3 + 0.1 + 4 * 0.15) / 10)
    assert (first.min_usd, first.max_usd, first.on_demand_usd) == (0.02, 0.3, 0.1)
    assert first.share_above == pytest.approx(0.7)
    assert (first.spikes, first.largest_gap_s) == (2, 2 * HOUR_S)
    assert (second.on_demand_usd, second.share_above, second.spikes) == (None, None, None)
    assert (second.mean_usd, second.largest_gap_s) == (pytest.approx(0.01), 6 * HOUR_S)


def test_what_the_prices_do_is_told_beside_the_on_demand_price_at_the_end() -> None:
    """Up and down every half hour for a day: the level is a share of the last on-demand price, 0.2, not of the first."""
    prices = trace(*((half / 2, 20 + 10 * (half % 2)) for half in range(49)))
    known = catalog(("c4.large", 100, None), ("c4.large", 200, date(2016, 4, 2)))
    held = describe("p", TraceSet({A: prices, B: prices}), known).as_json()["markets"]
    assert held[0]["statistics"]["changes_per_hour"] == pytest.approx(2.0)
    assert held[0]["statistics"]["level"] in (pytest.approx(0.1), pytest.approx(0.125), pytest.approx(0.15))
    assert held[0]["statistics"]["soon_if_old"] is None, "no price stands for an hour, and NaN is no JSON"
    assert held[1]["statistics"] is None, "nothing is known of what it costs on demand"


def test_a_market_in_which_too_little_happens_has_no_such_figures() -> None:
    found = describe("p", TraceSet({A: trace((0, 20), (48, 20))}), catalog(("c4.large", 100, None)))
    assert found.markets[0].statistics is None


def test_the_on_demand_price_of_each_day_counts() -> None:
    known = catalog(("c4.large", 100, date(2016, 4, 2)), ("c4.large", 50, date(2016, 4, 3)))
    held = describe("p", TraceSet({A: trace((0, 80), (96, 80))}), known).markets[0]
    # unknown on the 1st, 0.1 on the 2nd, 0.05 on the 3rd and 4th
    assert held.share_above == pytest.approx(2 / 3)
    assert (held.spikes, held.on_demand_usd) == (1, 0.05)


def test_a_market_that_begins_above_on_demand_has_a_spike() -> None:
    held = describe("p", TraceSet({A: trace((0, 200), (1, 300))}), catalog(("c4.large", 100, None))).markets[0]
    assert (held.share_above, held.spikes) == (1.0, 1)


def test_a_single_event_has_figures() -> None:
    found = describe("p", TraceSet({A: trace((0, 200))}), catalog(("c4.large", 100, None)))
    held = found.markets[0]
    assert (held.mean_usd, held.share_above, held.largest_gap_s) == (0.2, 1.0, 0)
    assert found.silence_s == 0


def test_a_catalogue_that_is_given_must_know_every_type(tmp_path: Path) -> None:
    write_prices(tmp_path / "p.csv", TraceSet({A: trace((0, 1)), B: trace((0, 1))}))
    head = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\n"
    (tmp_path / "c.csv").write_text(head + "c4.large,us-east-1,2,4,0.1\n")
    prices, known = str(tmp_path / "p.csv"), str(tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"p\.csv: row 3: m4\.large is not in the catalogue"):
        open_traces(prices, catalog=known)
    traces, _ = open_traces(prices, catalog=known, wanted=[str(A)])
    assert traces.markets == (A,)
    with pytest.raises(InputError, match=r"c\.csv: has no m4\.large"):
        open_traces(prices, catalog=known, wanted=[str(B)])


def test_the_region_of_the_zones_is_taken_where_the_catalogue_has_several(tmp_path: Path) -> None:
    write_prices(tmp_path / "p.csv", TraceSet({Market("a", "us-gov-west-1b"): trace((0, 1))}))
    head = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\n"
    (tmp_path / "c.csv").write_text(head + "a,us-east-1,2,4,0.1\na,us-gov-west-1,2,4,0.2\n")
    prices, known = str(tmp_path / "p.csv"), str(tmp_path / "c.csv")
    priced = [
        open_traces(prices, catalog=known, region=region)[1].at(date(2016, 4, 1))["a"].on_demand_micros
        for region in (None, "us-east-1")
    ]
    assert priced == [200_000, 100_000]


@pytest.mark.parametrize(("wanted", "said"), [("x", "not a market"), ("x/y", "has no prices in")])
def test_a_market_that_is_not_there_is_refused(tmp_path: Path, wanted: str, said: str) -> None:
    write_prices(tmp_path / "p.csv", TraceSet({A: trace((0, 1))}))
    with pytest.raises(InputError, match=f"--market.*{said}"):
        open_traces(str(tmp_path / "p.csv"), wanted=[wanted])


# Generate

MADE = {"seed": 5, "days": 2.0, "types": ["m4.large", "c4.large"], "zones": ["b", "a"], "climate": "lively"}


def test_a_file_is_the_generators_market_of_the_seed(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = tmp_path / "p.parquet"
    made = generate_file(
        str(path),
        **MADE,  # type: ignore[arg-type]
        begin=date(2016, 4, 1),
        report=lambda done, of, what: told.append((done, of)),
    )
    types = read_catalog().at(date(2016, 4, 1))
    on_demand = {Market(name, zone): types[name].on_demand_micros for name in ("c4.large", "m4.large") for zone in "ab"}
    assert made == generate(on_demand, T0, T0 + 2 * DAY_S, np.random.default_rng(5), climate=LIVELY)
    assert read_prices(path) == made
    assert told == [(done, 4) for done in range(5)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"days": 0.0}, "--days 0: want more than 0"),
        ({"days": float("nan")}, "--days nan"),
        ({"days": 1e9}, "--days 1e[+]09: .* at most 3653"),
        ({"types": ["z9.huge"]}, "--types z9.huge: is not on sale on 2016-04-01"),
        ({"types": []}, "--types and --zones"),
        ({"zones": ["a/b"]}, "--zones 'a/b'"),
        ({"zones": ["a\rb"]}, r"--zones 'a\\rb'"),
        ({"zones": ['a"b']}, "--zones 'a\"b'"),
        ({"climate": "polar"}, "--climate polar: want one of typical, lively, rush-hours"),
        ({"begin": date(1999, 1, 1)}, "is not on sale on 1999-01-01"),
    ],
    ids=str,
)
def test_a_market_that_cannot_be_made_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate_file(str(tmp_path / "p.csv"), **{**MADE, "begin": date(2016, 4, 1), **change})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


# Convert


def test_a_bad_name_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"out\.xls: .*ending"):
        convert_prices("nowhere.csv", str(tmp_path / "out.xls"))
    with pytest.raises(InputError, match="a catalogue is a CSV"):
        convert_price_list("nowhere.csv", str(tmp_path / "out.parquet"))


def test_the_product_is_kept(tmp_path: Path) -> None:
    traces = TraceSet({A: trace((0, 1))})
    write_prices(tmp_path / "in.csv", traces, "SUSE")
    convert_prices(str(tmp_path / "in.csv"), str(tmp_path / "out.json"), product="SUSE")
    assert read_prices(tmp_path / "out.json", product="SUSE") == traces
