"""Read the on-demand Linux machines of AWS's price list of EC2 (the offer file ``index.csv`` or ``index.json``).

Included are offers of Linux without licence or pre-installed software, shared tenancy, used capacity (not reserved),
billed by the hour, in a region (no local zone, no Outpost).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import botocore.session
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from proteus_spot.bidding.market.catalog import CatalogRow
from proteus_spot.bidding.market.model import InstanceType
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, as_utf8, read_whole, unpacked

#: The names of each attribute in the CSV and in the JSON, by our name.
_NAMES = {
    "type": ("Instance Type", "instanceType"),
    "vcpu": ("vCPU", "vcpu"),
    "memory": ("Memory", "memory"),
    "gpus": ("GPU", "gpu"),
    "region": ("Region Code", "regionCode"),
    "location": ("Location", "location"),
    "location_type": ("Location Type", "locationType"),
    "system": ("Operating System", "operatingSystem"),
    "tenancy": ("Tenancy", "tenancy"),
    "capacity": ("CapacityStatus", "capacitystatus"),
    "software": ("Pre Installed S/W", "preInstalledSw"),
    "licence": ("License Model", "licenseModel"),
    "operation": ("operation", "operation"),
    "option": ("MarketOption", "marketoption"),
}
#: Required values of attributes; an attribute that an older list lacks counts as fulfilled.
_WANTED = {
    "system": "Linux",
    "tenancy": "Shared",
    "capacity": "Used",
    "software": "NA",
    "licence": "No License required",
    "operation": "RunInstances",
    "option": "OnDemand",
    "location_type": "AWS Region",
}
_NEEDED = ("type", "vcpu", "memory", "location", "system", "tenancy")
#: The CSV columns that define the price.
_TERM, _UNIT, _PRICE, _CURRENCY = "TermType", "Unit", "PricePerUnit", "Currency"
_CSV_HEAD_ROWS = 5


@dataclass(frozen=True)
class PriceList:
    """The machines of a price list.

    Attributes
    ----------
    rows : rows of a catalogue, one for each type and region.
    ambiguous : ``type/region`` of what has several prices and is left out.
    """

    rows: tuple[CatalogRow, ...]
    ambiguous: tuple[str, ...]


def read_price_list(source: Source, region: str | None = None) -> PriceList:
    """Return the machines of a price list, only those of `region` if it is given.

    Raises
    ------
    InputError
        If the file is not a price list of EC2, its prices are not in dollars, or it has no such machine.
    """
    data = as_utf8(source, unpacked(source, read_whole(source)))
    offers = _json_offers(source, data) if data.lstrip()[:1] == b"{" else _csv_offers(source, data)
    return _price_list(source, offers, region)


def priced_offers(source: Source, document: Mapping[str, Any], region: str | None = None) -> PriceList:
    """Return the machines of an offer file's content, which `source` names in errors; raises as `read_price_list`."""
    return _price_list(source, _offers(source, document["products"], document["terms"]["OnDemand"]), region)


def _price_list(source: Source, offers: Iterator[tuple[dict[str, str], str]], region: str | None) -> PriceList:
    prices: dict[tuple[str, str], dict[int, InstanceType]] = {}
    for offer, dollars in offers:
        kind = _machine(source, offer, dollars)
        where = offer.get("region") or _region_of(offer["location"])
        if kind is not None and region in (None, where):
            prices.setdefault((kind.name, where), {})[kind.on_demand_micros] = kind
    if not prices:
        raise InputError(
            f"{source}: has no on-demand Linux machine{f' in {region}' if region else ''}; give EC2's list"
        )
    rows = [CatalogRow(next(iter(kinds.values())), where) for (_, where), kinds in prices.items() if len(kinds) == 1]
    ambiguous = [f"{name}/{where}" for (name, where), kinds in prices.items() if len(kinds) > 1]
    return PriceList(tuple(rows), tuple(sorted(ambiguous)))


def _machine(source: Source, offer: Mapping[str, str], dollars: str) -> InstanceType | None:
    """Return the machine of an offer; None for one that is not sold by the hour."""
    try:
        micros = to_micros(dollars)
        vcpu = int(offer["vcpu"])
        number, _, unit = offer["memory"].replace(",", "").partition(" ")
        memory_gib = float(number)
        gpus = int(offer.get("gpus") or 0)
        if unit != "GiB" or vcpu <= 0:
            raise ValueError(f"{vcpu} vCPU and {offer['memory']}")
    except ValueError as error:
        raise InputError(f"{source}: {offer['type']} in {offer['location']}: {error}; is it EC2's list?") from None
    return InstanceType(offer["type"], vcpu, memory_gib, micros, gpus) if micros > 0 else None


@cache
def _region_names() -> Mapping[str, str]:
    loader = botocore.session.get_session().get_component("data_loader")
    partitions = loader.load_data("endpoints")["partitions"]
    return {about["description"]: name for part in partitions for name, about in part["regions"].items()}


def _region_of(location: str) -> str:
    """Return the region code of a location name, for lists without codes; an unknown name is returned unchanged."""
    names = _region_names()
    return names.get(location) or names.get(location.replace("EU (", "Europe (")) or location


# CSV


def _csv_offers(source: Source, data: bytes) -> Iterator[tuple[dict[str, str], str]]:
    lines = data[:65536].split(b"\n", _CSV_HEAD_ROWS + 1)
    header = lines[_CSV_HEAD_ROWS] if len(lines) > _CSV_HEAD_ROWS else b""
    names = [name.strip().strip('"') for name in header.decode(errors="replace").split(",")]
    needed = [_TERM, _UNIT, _PRICE, _CURRENCY, *(_NAMES[name][0] for name in _NEEDED)]
    if missing := [name for name in needed if name not in names]:
        raise InputError(f"{source}: row {_CSV_HEAD_ROWS + 1} lacks {', '.join(missing)}; give EC2's offer file")
    wanted = {**{ours: theirs for ours, (theirs, _) in _NAMES.items() if theirs in names}, "currency": _CURRENCY}
    wanted |= {"term": _TERM, "unit": _UNIT, "price": _PRICE}
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            read_options=pa_csv.ReadOptions(skip_rows=_CSV_HEAD_ROWS),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(wanted.values()), column_types=dict.fromkeys(wanted.values(), pa.string())
            ),
        )
    except pa.ArrowException as error:
        raise InputError(f"{source}: {' '.join(str(error).split())[:200]}; fetch the file again") from None
    table = table.rename_columns(list(wanted))
    keep = pc.and_(pc.equal(table["term"], "OnDemand"), pc.equal(table["unit"], "Hrs"))
    for name, value in _WANTED.items():
        if name in wanted:
            keep = pc.and_(keep, pc.equal(table[name], value))
    for offer in table.filter(keep).to_pylist():  # a few hundred per region remain
        _check_dollars(source, offer["currency"], offer["type"])
        yield offer, offer["price"]


# JSON


def _json_offers(source: Source, data: bytes) -> Iterator[tuple[dict[str, str], str]]:
    try:
        document = json.loads(data)
        products, terms = document["products"], document["terms"]["OnDemand"]
    except UnicodeDecodeError:
        raise InputError(f"{source}: is not UTF-8 text; give EC2's offer file") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}: row {error.lineno}: is not JSON ({error.msg.lower()}); fetch the file again"
        ) from None
    except (
        KeyError,
        TypeError,
        RecursionError,
        ValueError,
    ):  # also nested too deeply, and numbers of thousands of digits
        raise InputError(f"{source}: is JSON without products and terms; give EC2's offer file") from None
    yield from _offers(source, products, terms)


def _offers(
    source: Source, products: Mapping[str, Any], terms: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], str]]:
    for sku, product in products.items():
        try:
            attributes = product["attributes"]
            offer = {ours: attributes[theirs] for ours, (_, theirs) in _NAMES.items() if theirs in attributes}
            if any(offer.get(name, value) != value for name, value in _WANTED.items()) or not set(_NEEDED) <= set(
                offer
            ):
                continue
            dimensions = [
                dimension for term in terms.get(sku, {}).values() for dimension in term["priceDimensions"].values()
            ]
            for dimension in dimensions:
                if dimension["unit"] == "Hrs":
                    ((currency, dollars),) = dimension["pricePerUnit"].items()
                    _check_dollars(source, currency, offer["type"])
                    yield offer, dollars
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{source}: product {sku}: is not as in an offer file; fetch the file again") from None


def _check_dollars(source: Source, currency: Any, name: str) -> None:
    if currency != "USD":
        raise InputError(f"{source}: the price of {name} is in {currency}; give a list in USD")
