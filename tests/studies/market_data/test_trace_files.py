"""The figures of a price file against hand-made ones, and files made from a seed."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.synthetic.renewal_market import LIVELY, generate
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices, write_prices
from proteus_spot.studies.market_data.trace_files import convert_price_list, convert_prices, generate_file, open_traces
from proteus_spot.studies.market_data.trace_summary import describe

T0 = int(datetime(2016, 4, 1, tzinfo=UTC).timestamp())
A, B = Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b")


def trace(*events: tuple[float, int]) -> Trace:
    """A trace of (hours since T0, price in thousandths of a dollar)."""
    return Trace(
        np.array([T0 + int(hours * HOUR_S) for hours, _ in events]), np.array([milli * 1000 for _, milli in events])
    )


def catalog(*rows: tuple[str, int, date | None]) -> Catalog:
    return Catalog(CatalogRow(InstanceType(name, 2, 4.0, milli * 1000), "us-east-1", day) for name, milli, day in rows)


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
    """Up and down every half hour for a day: the level is a share of the last on-demand price, 0.2, not the first."""
    prices = trace(*((half / 2, 20 + 10 * (half % 2)) for half in range(49)))
    known = catalog(("c4.large", 100, None), ("c4.large", 200, date(2016, 4, 2)))
    held = describe("p", TraceSet({A: prices, B: prices}), known).as_json()["markets"]
    assert held[0]["statistics"]["changes_per_hour"] == pytest.approx(2.0)
    assert held[0]["statistics"]["level"] in (pytest.approx(0.1), pytest.approx(0.125), pytest.approx(0.15))
    assert held[0]["statistics"]["soon_if_old"] is None, "no price stands for an hour, and NaN is not JSON"
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
    with pytest.raises(InputError, match=r"p\.csv: row 3: instance type m4\.large is not in the catalogue"):
        open_traces(prices, catalog=known)
    traces, _ = open_traces(prices, catalog=known, wanted=[str(A)])
    assert traces.markets == (A,)
    with pytest.raises(InputError, match=r"p\.csv: instance type m4\.large is not in .*c\.csv"):
        open_traces(prices, catalog=known, wanted=[str(B)])


EAST, WEST, LOCAL = (Market("m4.large", zone) for zone in ("us-east-1a", "us-west-2b", "us-west-2-lax-1a"))
ODD = Market("m4.large", "zone-a")
HEAD = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\n"
TWO_REGIONS = HEAD + "m4.large,us-east-1,2,8,0.12\nm4.large,us-west-2,2,8,0.132\n"


def files(tmp_path: Path, *markets: Market, known: str = TWO_REGIONS) -> tuple[str, str]:
    write_prices(tmp_path / "p.csv", TraceSet({market: trace((0, 125), (2, 126)) for market in markets}))
    (tmp_path / "c.csv").write_text(known)
    return str(tmp_path / "p.csv"), str(tmp_path / "c.csv")


def shown(prices: str, *options: Any, **more: Any) -> dict[str, float | None]:
    found = describe("p", *open_traces(prices, *options, **more))
    return {market.market: market.on_demand_usd for market in found.markets}


def test_each_market_is_shown_with_the_price_of_its_own_region(tmp_path: Path) -> None:
    prices, known = files(tmp_path, EAST, WEST, LOCAL)
    assert shown(prices, catalog=known) == {str(EAST): 0.12, str(WEST): 0.132, str(LOCAL): 0.132}
    assert shown(prices, catalog=known, region="us-west-2") == {str(WEST): 0.132, str(LOCAL): 0.132}


def test_markets_whose_region_the_shipped_catalogue_lacks_have_no_price_and_a_note(tmp_path: Path) -> None:
    prices, _ = files(tmp_path, EAST, WEST, LOCAL)
    assert shown(prices) == {str(EAST): 0.12, str(WEST): None, str(LOCAL): None}
    notes = describe("p", *open_traces(prices)).notes
    assert [note.split(" lies")[0] for note in notes] == ["zone us-west-2-lax-1a", "zone us-west-2b"]
    assert all("no region of the catalogue (us-east-1): no on-demand price; give a --catalog" in note for note in notes)


def test_a_zone_that_says_no_region_lies_in_the_one_that_is_named(tmp_path: Path) -> None:
    prices, known = files(tmp_path, ODD, EAST)
    with pytest.raises(InputError, match=r"p\.csv: row 4: zone zone-a lies in no region of the catalogue"):
        open_traces(prices, catalog=known)
    assert shown(prices, catalog=known, region="us-west-2") == {str(ODD): 0.132}
    assert shown(prices, catalog=known, region="us-east-1") == {str(EAST): 0.12, str(ODD): 0.12}


def test_a_region_without_a_market_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    prices, known = files(tmp_path, EAST)
    with pytest.raises(InputError, match=r"--region us-west-2: .*p\.csv has no market in it; .* lie in us-east-1"):
        open_traces(prices, catalog=known, region="us-west-2")


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
    types = read_catalog().at(date(2016, 4, 1), "us-east-1")
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
        ({"types": ["z9.huge"]}, "--types z9.huge: instance type z9.huge is not in the catalogue; it has c3.2xlarge, "),
        ({"types": []}, "--types and --zones"),
        ({"zones": ["a/b"]}, "--zones 'a/b'"),
        ({"zones": ["a\rb"]}, r"--zones 'a\\rb'"),
        ({"zones": ['a"b']}, "--zones 'a\"b'"),
        ({"climate": "polar"}, "--climate polar: want one of typical, lively, rush-hours"),
        (
            {"begin": date(1999, 1, 1)},
            "has no on-demand price on 1999-01-01 in the catalogue; give another --from or --zones",
        ),
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
