"""Catalogues: read from their day on, by region, written back the same, and refused in one line."""

import gzip
import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.market.catalog import CatalogRow
from proteus_spot.bidding.market.model import InstanceType
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog, write_catalog

CATALOG_HEAD = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h,from_date\n"


def test_the_shipped_catalogue_knows_the_types_of_2016() -> None:
    types = read_catalog().at(date(2016, 4, 1), "us-east-1")
    assert {"c3.xlarge", "c4.large", "c4.xlarge", "m3.medium", "m4.large", "r3.large"} <= set(types)
    assert (types["c4.large"].vcpu, types["c4.large"].on_demand_micros) == (2, 105_000)
    for kind in types.values():
        assert 1 <= kind.vcpu <= 40
        assert 10_000 <= kind.on_demand_micros / kind.vcpu <= 120_000, kind


def test_a_row_of_a_catalogue_holds_from_its_day(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text(CATALOG_HEAD + "a.big,x,8,15.25,0.5,\na.big,x,8,15.25,0.3333335,2016-01-01\n")
    catalog = read_catalog(path)
    before, after = (catalog.at(date(*day), "x")["a.big"] for day in ((2015, 12, 31), (2016, 1, 1)))
    assert (before.vcpu, before.memory_gib, before.on_demand_micros) == (8, 15.25, 500_000)
    assert after.on_demand_micros == 333_334


@pytest.mark.parametrize(("column", "text", "gpus"), [("gpus", "4", 4), ("gpu_count", "8.0", 8), ("gpus", "", 0)])
def test_a_catalogue_may_say_how_many_gpus_a_type_has(tmp_path: Path, column: str, text: str, gpus: int) -> None:
    path = tmp_path / "c.csv"
    path.write_text(f"instance_type,region,vcpu,memory_gib,on_demand_usd_per_h,{column}\na,x,8,61,0.9,{text}\n")
    assert read_catalog(path).at(date(2016, 4, 1), "x")["a"].gpus == gpus


def test_a_catalogue_needs_no_days_and_skips_what_is_not_sold_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\na,x,2,3.75,0.105\nb,x,2,4,\nc,x,2,4,0\n")
    assert set(read_catalog(path).at(date(2016, 4, 1), "x")) == {"a"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lacks instance_type"),
        (CATALOG_HEAD, "no rows"),
        ("instance_type,vcpu\n", "lacks region, memory_gib, on_demand_usd_per_h"),
        (CATALOG_HEAD + "a,x,2,4,ten,\n", "row 2: not an amount of money: 'ten'"),
        (CATALOG_HEAD + "a,x,2,4,-1,\n", "row 2: .*not below"),
        (CATALOG_HEAD + "a,x,two,4,1,\n", "row 2: .*two"),
        (CATALOG_HEAD + "a,x,0,4,1,\n", "row 2: vcpu must be above 0"),
        (CATALOG_HEAD + "a,x,2,nan,1,\n", "row 2: .*memory_gib"),
        (CATALOG_HEAD + "a,x,2,4,1,soon\n", "row 2: .*soon"),
        (CATALOG_HEAD + "a,x,2,4\n", "row 2: has another number of columns"),
        (CATALOG_HEAD + ",x,2,4,1,\n", "row 2: '' is not an instance_type"),
        (CATALOG_HEAD + "a,x,2,4,1,\na,x,2,4,2,\n", "row 3: a stands in row 2 already"),
        (CATALOG_HEAD + "a,,2,4,1,\n", "row 2: no region"),
        (CATALOG_HEAD.strip() + ",gpus\na,x,2,4,1,,1.5\n", "row 2: gpus must be a whole number from 0"),
        (CATALOG_HEAD.strip() + ",gpus\na,x,2,4,1,,few\n", "row 2: .*few"),
        (CATALOG_HEAD + "a,x,2,4,10001,\n", "row 2: no type has .* or costs more than .10000 an hour"),
        (CATALOG_HEAD + "a,x,2,4,1e400,\n", "row 2: not an amount of money: '1e400'"),
        (CATALOG_HEAD + f"a,x,{10**30},4,1,\n", "row 2: no type has more than 1000000 vCPUs"),
        (CATALOG_HEAD.replace("region", "region,vcpu") + "a,x,2,2,4,1,\n", "has vcpu twice"),
        (CATALOG_HEAD + 'a,"x,2,4,1,\n', "row 2: unexpected end of data"),
    ],
)
def test_a_bad_catalogue_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_catalog(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_catalogue_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_catalog(tmp_path / "none.csv")
    with pytest.raises(InputError, match="directory"):
        read_catalog(tmp_path)


def test_what_is_no_text_is_refused_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(CATALOG_HEAD.encode() + b"a,x,2,4,1,\n\xff,x,2,4,1,\n")
    with pytest.raises(InputError, match=r"c\.csv: row 3: is not UTF-8"):
        read_catalog(tmp_path / "c.csv")
    (tmp_path / "c.csv").write_bytes(gzip.compress(CATALOG_HEAD.encode() * 9)[:-6])
    with pytest.raises(InputError, match="cut short"):
        read_catalog(tmp_path / "c.csv")


def test_one_of_several_regions_is_chosen_and_further_columns_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "c.csv.gz"
    rows = "colour,instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\nred,a,x,2,4,1\nblue,a,y,2,4,2\n"
    path.write_bytes(gzip.compress(rows.encode()))
    found = {region: read_catalog(path, region).regions for region in (None, "x", "y")}
    assert found == {None: ("x", "y"), "x": ("x",), "y": ("y",)}
    prices = {region: read_catalog(path).at(date(2020, 1, 1), region)["a"].on_demand_micros for region in ("x", "y")}
    assert prices == {"x": 1_000_000, "y": 2_000_000}
    with pytest.raises(InputError, match=re.escape("has no rows of region 'z'; it has x, y")):
        read_catalog(path, "z")


ROWS = st.lists(
    st.builds(
        CatalogRow,
        st.builds(
            InstanceType,
            st.sampled_from(["a.big", "b.small"]),
            st.integers(1, 500),
            st.floats(0, 25_000),
            st.integers(1, 10**9),
            st.integers(0, 16),
        ),
        st.sampled_from(["here", "there"]),
        st.one_of(st.none(), st.dates(date(1990, 1, 1))),
    ),
    min_size=1,
    unique_by=lambda row: (row.instance_type.name, row.region, row.from_day),
)


@settings(deadline=None, max_examples=25)
@given(rows=ROWS, day=st.dates(date(1990, 1, 1)), ending=st.sampled_from([".csv", ".csv.gz"]))
def test_what_is_written_is_read_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[CatalogRow], day: date, ending: str
) -> None:
    path = tmp_path_factory.mktemp("catalogs") / f"c{ending}"
    write_catalog(path, rows)
    found = read_catalog(path)
    assert found.regions == tuple(sorted({row.region for row in rows}))
    held = sorted((row for row in rows if (row.from_day or date.min) <= day), key=lambda row: row.from_day or date.min)
    for region in found.regions:
        sold = {row.instance_type.name: row.instance_type for row in held if row.region == region}
        assert found.at(day, region) == sold
