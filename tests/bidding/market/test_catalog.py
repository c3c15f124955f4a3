"""A row of the catalogue holds from its day until the type's next."""

from datetime import date

import pytest

from proteus_spot.bidding.market.catalog import Catalog, CatalogRow, RegionsDiffer, named_region, region_among
from proteus_spot.bidding.market.model import InstanceType, Market


def row(name: str, price: int, day: date | None = None) -> CatalogRow:
    return CatalogRow(InstanceType(name, 2, 3.75, price), "us-east-1", day)


ROWS = [
    row("m4.large", 120_000, date(2015, 6, 11)),
    row("c4.large", 105_000, date(2015, 10, 1)),
    row("m4.large", 108_000, date(2016, 12, 1)),
    row("c4.large", 116_000),
]


def prices(catalog: Catalog, day: date) -> dict[str, int]:
    return {name: kind.on_demand_micros for name, kind in catalog.at(day, "us-east-1").items()}


def test_a_row_holds_from_its_day_to_the_next_row() -> None:
    catalog = Catalog(ROWS)
    assert prices(catalog, date(2015, 6, 10)) == {"c4.large": 116_000}
    assert prices(catalog, date(2015, 6, 11)) == {"c4.large": 116_000, "m4.large": 120_000}
    assert prices(catalog, date(2016, 11, 30)) == {"c4.large": 105_000, "m4.large": 120_000}
    assert prices(catalog, date(2016, 12, 1)) == {"c4.large": 105_000, "m4.large": 108_000}


def test_a_row_without_a_day_holds_from_the_beginning() -> None:
    assert prices(Catalog(ROWS), date.min) == {"c4.large": 116_000}


def test_the_order_of_the_rows_does_not_matter() -> None:
    for day in (date(2015, 6, 11), date(2017, 1, 1)):
        assert list(prices(Catalog(ROWS), day).items()) == list(prices(Catalog(reversed(ROWS)), day).items())


WEST = Market("m4.large", "us-west-2a")
EAST = Market("m4.large", "us-east-1a")
DAY = date(2016, 4, 1)


def regional(*rows: tuple[str, str, int]) -> Catalog:
    return Catalog([CatalogRow(InstanceType(name, 2, 8.0, price), region) for name, region, price in rows])


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("us-iso-east-1a", "us-iso-east-1"),
        ("eu-west-1", "eu-west-1"),
        ("use1-az4", "use1"),
        ("us-central1-a", "us-central1"),
        ("europe-west10-b", "europe-west10"),
        ("zone-a", None),
        ("a", None),
        ("", None),
    ],
)
def test_the_name_of_a_zone_says_its_region(zone: str, region: str | None) -> None:
    assert named_region(zone) == region


def test_a_zone_lies_in_the_narrowest_region_of_its_name() -> None:
    regions = ("us-west-2", "us-west-2-lax-1", "us-east-1", "eastus")
    zones = ("us-west-2a", "us-west-2-lax-1a", "us-east-10a", "eastus-1", "eastus2-1", "us-west-2ab")
    found = [region_among(zone, regions) for zone in zones]
    assert found == ["us-west-2", "us-west-2-lax-1", None, "eastus", None, None]


def test_each_market_has_the_price_of_its_own_region() -> None:
    catalog = regional(("m4.large", "us-east-1", 120_000), ("m4.large", "us-west-2", 132_000))
    kinds = [catalog.find(market, DAY) for market in (EAST, WEST, Market("m4.large", "us-west-2-lax-1a"))]
    assert [kind and kind.on_demand_micros for kind in kinds] == [120_000, 132_000, 132_000]
    assert catalog.find(Market("m4.large", "eu-west-1a"), DAY) is None
    assert catalog.find(Market("m4.large", "zone-a"), DAY) is None, "of two regions none is taken unasked"
    assert regional(("m4.large", "us-east-1", 5)).find(Market("m4.large", "zone-a"), DAY) is not None


@pytest.mark.parametrize(
    ("market", "fault"),
    [
        (Market("m4.large", "eu-west-1a"), "zone eu-west-1a lies in no region of c.csv (us-east-1, us-west-2)"),
        (Market("c4.large", "us-east-1a"), "instance type c4.large is not in c.csv for us-east-1"),
        (EAST, "instance type m4.large has no on-demand price on 2016-04-01 in c.csv for us-east-1"),
        (WEST, None),
    ],
)
def test_what_a_market_lacks_is_said(market: Market, fault: str | None) -> None:
    later = CatalogRow(InstanceType("m4.large", 2, 8.0, 1), "us-east-1", date(2017, 1, 1))
    catalog = Catalog([later, CatalogRow(InstanceType("m4.large", 2, 8.0, 1), "us-west-2")])
    assert catalog.fault(market, DAY, "c.csv") == fault


def test_one_price_for_all_markets_of_a_type_or_none() -> None:
    differing = regional(
        ("m4.large", "us-east-1", 120_000), ("m4.large", "us-west-2", 132_000), ("c4.large", "us-west-2", 100_000)
    )
    with pytest.raises(RegionsDiffer, match=r"m4\.large costs differently on demand in us-east-1 and us-west-2"):
        differing.types([EAST, WEST], DAY)
    apart = differing.types([EAST, Market("c4.large", "us-west-2a")], DAY)
    assert {name: kind.on_demand_micros for name, kind in apart.items()} == {"m4.large": 120_000, "c4.large": 100_000}
    other = regional(
        ("m4.large", "us-east-1", 5), ("m4.large", "us-west-2", 5), ("x", "us-east-1", 1), ("x", "us-west-2", 2)
    )
    assert set(other.types([EAST, WEST], DAY)) == {"m4.large"}, "x has no one price in these regions"
    with pytest.raises(ValueError, match="zone eu-west-1a lies in no region"):
        differing.types([EAST, Market("m4.large", "eu-west-1a")], DAY)
