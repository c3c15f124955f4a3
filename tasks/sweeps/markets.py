"""Where the trials of a sweep may run: markets by name, or machines by size, resolved against what is on sale."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import Market
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.form_fields import FormModel, MarketName

#: 2 (exactly), 2+ (at least), 2-8 (both included); decimals are taken.
_RANGE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(?:(\+)|-([0-9]{1,7}(?:\.[0-9]{1,3})?))?")
#: Maximum number of markets that a message names.
_MOST_NAMED = 6


def _bounds(text: str) -> tuple[float, float]:
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size; write 2 (exactly), 2+ (at least) or 2-8")
    low = float(found[1])
    high = float("inf") if found[2] else float(found[3] or found[1])
    if high < low or not high:
        raise ValueError(f"{text!r} is not a size of a machine; write 2 (exactly), 2+ (at least) or 2-8")
    return low, high


def _is_a_size(text: str | None) -> str | None:
    if text is not None:
        _bounds(text)
    return text


def _is_a_name(text: str) -> str:
    if not text or "/" in text or not text.isprintable() or any(letter.isspace() for letter in text):
        raise ValueError(f"{text!r} is not a name; write it as in c4.large or us-east-1a")
    return text


_Size = Annotated[
    str | None,
    Field(coerce_numbers_to_str=True, json_schema_extra={"pattern": f"^{_RANGE.pattern}$"}),
    AfterValidator(_is_a_size),
]
_Name = Annotated[str, AfterValidator(_is_a_name)]


class MarketSelection(FormModel):
    """Every market that has prices, of the machines and zones described; all that is given must hold."""

    cpus: _Size = Field(None, title="vCPUs", description="2 (exactly), 2+ (at least) or 2-8. Empty: any.")
    memory_gib: _Size = Field(None, title="Memory in GiB", description="As vCPUs. Empty: any.")
    types: list[_Name] = Field(default_factory=list, title="Instance types", description="Empty: any.")
    zones: list[_Name] = Field(default_factory=list, title="Zones", description="Empty: any.")

    def fits(self, market: Market, vcpu: float, memory_gib: float) -> bool:
        """Return whether a machine of this size in `market` is among those described."""
        return (
            (not self.types or market.instance_type in self.types)
            and (not self.zones or market.zone in self.zones)
            and _within(self.cpus, vcpu)
            and _within(self.memory_gib, memory_gib)
        )


#: As a sweep's file has it: TYPE/ZONE each, or a selection.
Markets = list[MarketName] | MarketSelection


def resolve_markets(
    wanted: Markets, priced: Iterable[Market], catalog: Catalog, at_s: int, place: str = "markets"
) -> tuple[Market, ...]:
    """Return the markets where trials may run, sorted: those wanted that have prices and are in the catalogue.

    Parameters
    ----------
    priced : markets that have prices.
    at_s : time of the sweep, seconds since the epoch; the catalogue's row of that day counts.
    place : name of the field, for errors.

    Raises
    ------
    InputError
        One line if a market that is named has no prices or is not on sale, or if no market fits.
    """
    day = datetime.fromtimestamp(at_s, UTC).date()
    offered = sorted(set(priced))
    if isinstance(wanted, list):
        named = sorted({Market.parse(text) for text in wanted})
        for market in named:
            if market not in offered:
                raise InputError(f"{place}: {market} has no prices; name some of {_listed(offered)}")
            if (fault := catalog.fault(market, day)) is not None:
                raise InputError(f"{place}: {market}: {fault}; leave it out, or give another catalogue")
        return tuple(named)
    sizes = {market: kind for market in offered if (kind := catalog.find(market, day)) is not None}
    for what, names, offers in (
        ("types", wanted.types, {market.instance_type for market in sizes}),
        ("zones", wanted.zones, {market.zone for market in sizes}),
    ):
        if unknown := [name for name in names if name not in offers]:
            raise InputError(f"{place}.{what}: {unknown[0]} has no prices; name some of {_listed(sorted(offers))}")
    found = tuple(market for market, kind in sizes.items() if wanted.fits(market, kind.vcpu, kind.memory_gib))
    if not found:
        raise InputError(f"{place}: no market has such a machine; there are {_listed(list(sizes))}")
    return found


def _within(size: str | None, value: float) -> bool:
    if size is None:
        return True
    low, high = _bounds(size)
    return low <= value <= high


def _listed(names: list[str] | list[Market]) -> str:
    shown = ", ".join(str(name) for name in names[:_MOST_NAMED])
    return f"{shown}{', …' if len(names) > _MOST_NAMED else ''}" or "none"
