"""A row of the catalogue holds from its day until the type's next."""

from datetime import date

from bidding.market.catalog import Catalog, CatalogRow
from bidding.market.model import InstanceType


def row(name: str, price: int, day: date | None = None) -> CatalogRow:
    return CatalogRow(InstanceType(name, 2, 3.75, price), day)


ROWS = [
    row("m4.large", 120_000, date(2015, 6, 11)),
    row("c4.large", 105_000, date(2015, 10, 1)),
    row("m4.large", 108_000, date(2016, 12, 1)),
    row("c4.large", 116_000),
]


def prices(catalog: Catalog, day: date) -> dict[str, int]:
    return {name: kind.on_demand_micros for name, kind in catalog.at(day).items()}


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
        assert list(Catalog(ROWS).at(day).items()) == list(Catalog(reversed(ROWS)).at(day).items())


def test_names_are_sorted_and_each_there_once() -> None:
    assert Catalog(ROWS).names == ("c4.large", "m4.large")
    assert Catalog([]).names == ()
