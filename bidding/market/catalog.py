"""The instance types that can be bought, with their on-demand price of a day."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from bidding.market.model import InstanceType


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A type as it was from a day on; `from_day` None holds from the beginning."""

    instance_type: InstanceType
    from_day: date | None = None


class Catalog:
    """Rows of a catalogue; a row holds from its day until the type's next row."""

    def __init__(self, rows: Iterable[CatalogRow]) -> None:
        self._rows = sorted(rows, key=lambda row: (row.instance_type.name, row.from_day or date.min))

    @property
    def names(self) -> tuple[str, ...]:
        """Every type that has a row, sorted."""
        return tuple(dict.fromkeys(row.instance_type.name for row in self._rows))

    def lacks(self, name: str, day: date) -> str:
        """Return what is to be said of a type that is not on sale on `day`, to be followed by the catalogue's name."""
        return f"has no on-demand price on {day} in" if name in self.names else "is not in"

    def at(self, day: date) -> Mapping[str, InstanceType]:
        """Return the types on sale on `day`, by name; a type whose first row is later is not among them."""
        rows = (row for row in self._rows if row.from_day is None or row.from_day <= day)
        return {row.instance_type.name: row.instance_type for row in rows}
