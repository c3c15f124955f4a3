"""Catalogue of the instance types on sale, with their on-demand price by region and day."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from proteus_spot.bidding.market.model import InstanceType, Market

#: Zone names that contain their region: AWS (also local and wavelength zones, and zone IDs as in use1-az4) and GCE.
_ZONE_NAMES = (
    re.compile(r"([a-z]{2,}(?:-[a-z]+)+-\d+)(?:[a-z]|-[a-z0-9-]+)?"),
    re.compile(r"([a-z]{3,}\d+)-az\d+"),
    re.compile(r"([a-z]+-[a-z]+\d+)(?:-[a-z])?"),
)

#: Maximum number of a catalogue's regions that a message names.
_MOST_NAMED = 6


def named_region(zone: str) -> str | None:
    """Return the region in the name of a zone, as in us-west-2 for us-west-2-lax-1a; None if it contains none."""
    return next((found[1] for form in _ZONE_NAMES if (found := form.fullmatch(zone))), None)


def region_among(zone: str, regions: Iterable[str]) -> str | None:
    """Return the narrowest of `regions` in which a zone lies by its name; None if it lies in none."""
    inside = (
        region
        for region in regions
        if zone.startswith(region) and re.fullmatch(r"(?:[a-z]|-.+)?", zone.removeprefix(region))
    )
    return max(inside, key=len, default=None)


class RegionsDiffer(ValueError):
    """A type has one price for all its markets, and these lie in regions where it costs differently."""

    def __init__(self, name: str, regions: tuple[str, ...]) -> None:
        super().__init__(f"instance type {name} costs differently on demand in {' and '.join(regions)}")
        self.name, self.regions = name, regions


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A type as it was in a region from a day on; `from_day` None holds from the beginning."""

    instance_type: InstanceType
    region: str
    from_day: date | None = None


class Catalog:
    """Rows of a catalogue; a row holds from its day until the next row of its type and region."""

    def __init__(self, rows: Iterable[CatalogRow]) -> None:
        self._rows: dict[tuple[str, str], list[CatalogRow]] = {}
        for row in sorted(rows, key=lambda row: (row.region, row.instance_type.name, row.from_day or date.min)):
            self._rows.setdefault((row.region, row.instance_type.name), []).append(row)
        #: Every region that has a row, sorted.
        self.regions = tuple(dict.fromkeys(region for region, _ in self._rows))
        self._regions_of_zones: dict[str, str | None] = {}

    def region_of(self, zone: str) -> str | None:
        """Return the region of the catalogue in which a zone lies; None if it lies in none.

        A zone whose name contains no region lies in the catalogue's region if that has only one.
        """
        if zone not in self._regions_of_zones:
            found = region_among(zone, self.regions)
            if found is None and named_region(zone) is None and len(self.regions) == 1:
                found = self.regions[0]
            self._regions_of_zones[zone] = found
        return self._regions_of_zones[zone]

    def rows(self, market: Market) -> tuple[CatalogRow, ...]:
        """Return the rows of a market's type in the market's region, in the order of their days; none if unknown."""
        region = self.region_of(market.zone)
        return () if region is None else tuple(self._rows.get((region, market.instance_type), ()))

    def find(self, market: Market, day: date) -> InstanceType | None:
        """Return the type of `market` as its region sells it on `day`; None if it is not sold."""
        return _on(self.rows(market), day)

    def fault(self, market: Market, day: date | None = None, name: str = "the catalogue") -> str | None:
        """Return why there is no price of `market` (on `day`, if given) in words; None if there is one."""
        region, kind = self.region_of(market.zone), market.instance_type
        if region is None:
            more = ", …" if len(self.regions) > _MOST_NAMED else ""
            return f"zone {market.zone} lies in no region of {name} ({', '.join(self.regions[:_MOST_NAMED])}{more})"
        named = name if len(self.regions) == 1 else f"{name} for {region}"
        if not self.rows(market):
            return f"instance type {kind} is not in {named}"
        if day is not None and self.find(market, day) is None:
            return f"instance type {kind} has no on-demand price on {day} in {named}"
        return None

    def at(self, day: date, region: str) -> Mapping[str, InstanceType]:
        """Return the types on sale in `region` on `day`, by name; a type whose first row is later is not among them."""
        found = {name: _on(rows, day) for (where, name), rows in self._rows.items() if where == region}
        return {name: kind for name, kind in found.items() if kind is not None}

    def types(self, markets: Iterable[Market], day: date) -> Mapping[str, InstanceType]:
        """Return the types on sale on `day` in the regions of `markets`, by name.

        A type that none of `markets` has is left out where these regions sell it differently.

        Raises
        ------
        RegionsDiffer
            If a type that `markets` have in two regions costs differently in these, or has other vCPUs or GPUs.
        ValueError
            If one of `markets` is not sold on that day (`fault` says why).
        """
        regions_of_types: dict[str, set[str]] = {}
        for market in markets:
            if (fault := self.fault(market, day)) is not None:
                raise ValueError(fault)
            regions_of_types.setdefault(market.instance_type, set()).add(str(self.region_of(market.zone)))
        sold = {region: self.at(day, region) for region in sorted(set().union(*regions_of_types.values()))}
        types: dict[str, InstanceType] = {}
        for name in sorted(set().union(*sold.values())):
            regions = [region for region in sold if name in sold[region]]
            used = sorted(regions_of_types.get(name, regions))
            kinds = [sold[region][name] for region in used]
            if len({(kind.vcpu, kind.gpus, kind.on_demand_micros) for kind in kinds}) == 1:
                types[name] = kinds[0]
            elif name in regions_of_types:
                raise RegionsDiffer(name, tuple(used))
        return types


def _on(rows: Iterable[CatalogRow], day: date) -> InstanceType | None:
    last = None
    for row in rows:
        if row.from_day is None or row.from_day <= day:
            last = row.instance_type
    return last
