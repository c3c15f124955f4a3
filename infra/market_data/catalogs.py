"""Catalogues of instance types: read and written as CSV; every fault is one line."""

import csv
import io
from collections.abc import Iterable
from datetime import date
from importlib.resources import as_file, files
from typing import Any

from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import InstanceType
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, to_micros
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, packed, read_text, write_whole

CATALOG_COLUMNS = ("instance_type", "region", "vcpu", "memory_gib", "on_demand_usd_per_h")
FROM_DATE = "from_date"
#: The optional column of GPUs, and its name in catalogues of others.
_GPUS, _THEIR_GPUS = "gpus", "gpu_count"
#: More by far than any machine has, or costs by the hour.
_MOST_VCPUS, _MOST_USD_PER_H = 1_000_000, 10_000


def read_catalog(source: Source | None = None, region: str | None = None) -> Catalog:
    """Return the catalogue of a CSV file; None reads the shipped one (us-east-1, up to 2017).

    Parameters
    ----------
    source : str or Path, optional
        Path or fsspec URL, plain or gzipped. The columns are
        ``instance_type,region,vcpu,memory_gib,on_demand_usd_per_h`` and, if prices change, ``from_date``: a row holds
        from that day until the type's next row. ``gpus`` (or ``gpu_count``) is the number of GPUs, 0 without it. Other
        columns are ignored, and so is a type without an on-demand price.
    region : str, optional
        Take the rows of this region alone. Default: all, and a market is priced by the region of its zone.

    Raises
    ------
    InputError
        One line with the file, the row if there is one, and the fix.
    """
    if source is None:
        with as_file(files("proteus_spot.infra.market_data") / "catalog.csv") as shipped:
            return Catalog(_catalog_rows(shipped, region))
    return Catalog(_catalog_rows(source, region))


def write_catalog(target: Source, rows: Iterable[CatalogRow]) -> None:
    """Write rows as a file that `read_catalog` reads back; gzipped where it ends in ``.gz``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = sorted(rows, key=lambda row: (row.region, row.instance_type.name, row.from_day or date.min))
    dated = any(row.from_day for row in rows)
    writer.writerow([*CATALOG_COLUMNS, *([FROM_DATE] if dated else ()), _GPUS])
    for row in rows:
        kind = row.instance_type
        whole, rest = divmod(kind.on_demand_micros, MICROS_PER_DOLLAR)
        fields: list[Any] = [
            kind.name,
            row.region,
            kind.vcpu,
            kind.memory_gib,
            f"{whole}.{rest:06}".rstrip("0").rstrip("."),
        ]
        fields += [row.from_day or ""] if dated else []
        writer.writerow([*fields, kind.gpus])
    data = text.getvalue().encode()
    write_whole(target, packed(data) if str(target).endswith(".gz") else data)


def _catalog_rows(source: Source, region: str | None) -> Iterable[CatalogRow]:
    text = read_text(source)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        return _checked_rows(source, reader, region)
    except csv.Error as error:
        raise InputError(f"{source}: row {reader.reader.line_num}: {error}; fix the row") from None


def _checked_rows(source: Source, reader: "csv.DictReader[str]", region: str | None) -> list[CatalogRow]:
    _check_header(source, list(reader.fieldnames or ()))
    rows: list[CatalogRow] = []
    seen: dict[tuple[str, str, date | None], int] = {}
    regions: dict[str, None] = {}
    for raw in reader:
        where = f"{source}: row {reader.line_num}"
        row = _catalog_row(where, raw)
        if row is None:
            continue
        key = (row.instance_type.name, row.region, row.from_day)
        if key in seen:
            raise InputError(f"{where}: {key[0]} stands in row {seen[key]} already, from the same day; keep one")
        seen[key] = reader.line_num
        regions.setdefault(row.region)
        if region in (None, row.region):
            rows.append(row)
    if not regions:
        raise InputError(f"{source}: has a header and no rows; give a catalogue with instance types")
    if not rows:
        raise InputError(f"{source}: has no rows of region {region!r}; it has {', '.join(regions)}")
    return rows


def _check_header(source: Source, names: list[str]) -> None:
    missing = [name for name in CATALOG_COLUMNS if name not in names]
    if missing:
        raise InputError(
            f"{source}: the header (row 1) lacks {', '.join(missing)}; the columns are {','.join(CATALOG_COLUMNS)}"
        )
    if twice := [name for name in (*CATALOG_COLUMNS, FROM_DATE, _GPUS) if names.count(name) > 1]:
        raise InputError(f"{source}: the header (row 1) has {', '.join(twice)} twice; keep one")


def _catalog_row(where: str, raw: dict[str, Any]) -> CatalogRow | None:
    """Return the row; None for a type that is not sold on demand (without a price, or 0, as in AWS's price lists)."""
    if None in raw or None in raw.values():
        raise InputError(f"{where}: has another number of columns than the header; fix the row")
    name = raw["instance_type"].strip()
    try:
        vcpu, memory_gib = int(raw["vcpu"]), float(raw["memory_gib"])
        gpus = float(raw.get(_GPUS, raw.get(_THEIR_GPUS)) or 0)
        on_demand_micros = to_micros(raw["on_demand_usd_per_h"].strip() or 0)
        from_day = date.fromisoformat(raw[FROM_DATE].strip()) if (raw.get(FROM_DATE) or "").strip() else None
    except ValueError as error:
        raise InputError(f"{where}: {' '.join(str(error).split())}; fix the row") from None
    if not name or "/" in name:
        raise InputError(f"{where}: {name!r} is not an instance_type; fix the row")
    if not raw["region"].strip():
        raise InputError(f"{where}: no region; write it as us-east-1")
    if not (vcpu > 0 and 0 <= memory_gib < float("inf") and on_demand_micros >= 0):
        raise InputError(f"{where}: vcpu must be above 0, memory_gib and on_demand_usd_per_h not below")
    if not (gpus.is_integer() and 0 <= gpus <= _MOST_VCPUS):
        raise InputError(f"{where}: {_GPUS} must be a whole number from 0; fix the row")
    if vcpu > _MOST_VCPUS or on_demand_micros > _MOST_USD_PER_H * MICROS_PER_DOLLAR:
        raise InputError(
            f"{where}: no type has more than {_MOST_VCPUS} vCPUs or costs more than ${_MOST_USD_PER_H} an hour; "
            "fix the row"
        )
    if not on_demand_micros:
        return None
    return CatalogRow(
        InstanceType(name, vcpu, memory_gib, on_demand_micros, int(gpus)), raw["region"].strip(), from_day
    )
