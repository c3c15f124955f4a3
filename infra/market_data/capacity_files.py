"""Files about capacity: the spot advisor's bands, and availability traces; every fault is one line."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proteus_spot.bidding.evictions.fit_capacity import Band, availability_trace, capacity_trace
from proteus_spot.bidding.market.model import DAY_S, MINUTE_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source
from proteus_spot.infra.structured_text import read_json

#: A step of an availability trace takes minutes; beyond this stands another unit.
_LONGEST_GAP_S = 31 * DAY_S
#: More machines than a market has.
_MOST = 10**9


def read_advisor(source: Source, system: str = "Linux") -> Mapping[str, Mapping[str, Band]]:
    """Return the bands of an advisor file, by region and instance type.

    Parameters
    ----------
    source : JSON as EC2's spot advisor publishes it, plain or gzipped: ``ranges``, each with an ``index`` and its
        ``max`` percentage, and ``spot_advisor[region][system][type]`` with the index ``r``.

    Notes
    -----
    The bands are published as <5 %, 5-10 %, …, and >20 %: multiples of five. The file's `max` is up to two points above
    them (11, 16, 22) and is rounded down to them; that of the last band, 100, is no limit.

    Raises
    ------
    InputError
        If the file does not have this form.
    """
    record = _json(source)
    try:
        bands = _bands(_at(record, "ranges", "the file"))
        return {
            region: {
                name: _band(entry, f"{name} in {region}", bands)
                for name, entry in _mapping(systems[system], f"{system} in {region}").items()
            }
            for region, systems in _mapping(_at(record, "spot_advisor", "the file"), "spot_advisor").items()
            if system in _mapping(systems, region)
        }
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{source}: is not an advisor file: {error}; want `ranges`, and `spot_advisor` by region, system and type"
        ) from None


def _bands(ranges: Any) -> dict[int, Band]:
    """Return the bands by index; `ValueError` names what is not a range."""
    if not isinstance(ranges, list) or not ranges:
        raise ValueError("ranges is not a list of ranges")
    ordered = sorted((_whole(one, "index", f"ranges[{at}]"), _whole(one, "max", f"ranges[{at}]"), at)
                     for at, one in enumerate(ranges))  # fmt: skip
    bands: dict[int, Band] = {}
    low = 0.0
    for index, most, at in ordered:
        top = most // 5 * 5 / 100
        try:
            bands[index] = Band(low, None if top >= 1 else top)
        except ValueError:
            raise ValueError(f"ranges[{at}] ends at {most} %, and begins at {low:.0%}") from None
        low = top
    return bands


def _band(entry: Any, where: str, bands: Mapping[int, Band]) -> Band:
    index = _whole(entry, "r", f"the entry of {where}", f"the band of {where}")
    if index not in bands:
        raise ValueError(f"the band of {where} is {index}, which is none of the ranges ({', '.join(map(str, bands))})")
    return bands[index]


def _whole(record: Any, name: str, where: str, what: str = "") -> int:
    """Return a whole number of a mapping; `TypeError` names it `what`."""
    value = _at(record, name, where)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what or f'{where}.{name}'} is {json.dumps(value)[:60]}, no whole number")
    return value


def _at(record: Any, name: str, where: str) -> Any:
    found = _mapping(record, where)
    if name not in found:
        raise ValueError(f"{where} has no {name}")
    return found[name]


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{where} is {json.dumps(value)[:60]}, no mapping")
    return value


#: Makes a trace of the number of machines at each step, the seconds of a step, and the second of the first.
MakeTrace = Callable[[Sequence[int], int, int], Trace]


def read_availability(source: Source, begins_s: int = 0, make: MakeTrace = availability_trace) -> Trace:
    """Return an availability trace as prices (`bidding.evictions.fit_capacity`), from `begins_s` on.

    Parameters
    ----------
    make : `availability_trace`, or `capacity_trace` for the number of machines.
    source : JSON ``{"metadata": {"gap_seconds": …}, "data": […]}``, plain or gzipped: number of available machines at
        each step.

    Raises
    ------
    InputError
        If the file does not have this form.
    """
    up, gap = read_steps(source)
    try:
        return make(up, gap, begins_s)
    except (TypeError, ValueError) as error:
        raise _not_a_trace(source, error) from None


def read_steps(source: Source) -> tuple[list[int], int]:
    """Return the machines that could be had at each step of an availability trace, and the seconds of a step.

    Raises
    ------
    InputError
        If the file does not have the form that `read_availability` reads.
    """
    record = _json(source)
    try:
        gap = _at(_at(record, "metadata", "the file"), "gap_seconds", "metadata")
        up = _at(record, "data", "the file")
        if not isinstance(gap, int) or isinstance(gap, bool) or gap <= 0:
            raise ValueError(f"gap_seconds is {json.dumps(gap)[:60]}, not whole seconds above 0")
        if gap > _LONGEST_GAP_S:
            raise ValueError(f"gap_seconds is {gap}, more than a month")
        if not isinstance(up, list):
            raise TypeError(f"data is {json.dumps(up)[:60]}, no list")
        bad = next(
            (at for at, entry in enumerate(up) if not (isinstance(entry, int | float) and 0 <= entry < _MOST)), None
        )
        if bad is not None:
            raise ValueError(f"data[{bad}] is {json.dumps(up[bad])[:60]}, not how many machines could be had")
    except (TypeError, ValueError) as error:
        raise _not_a_trace(source, error) from None
    return up, gap


def _not_a_trace(source: Source, error: Exception) -> InputError:
    return InputError(
        f'{source}: is not an availability trace ({error}); want {{"metadata": {{"gap_seconds": …}}, "data": […]}}'
    )


def read_capacities(given: Sequence[str], begins_s: int = 0) -> TraceSet:
    """Return the number of machines of each market over time, of files as for `read_availabilities`."""
    return read_availabilities(given, begins_s, capacity_trace)


def read_availabilities(given: Sequence[str], begins_s: int = 0, make: MakeTrace = availability_trace) -> TraceSet:
    """Return availability traces by market, each given as ``FILE`` or ``TYPE/ZONE=FILE``.

    The market of a plain ``FILE`` is taken from its name, ``ZONE_TYPE.json``.

    Raises
    ------
    InputError
        If a file cannot be used, or two are of the same market.
    """
    traces: dict[Market, Trace] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            zone, _, kind = text.rsplit("/", 1)[-1].partition(".")[0].partition("_")
            name, path = f"{kind}/{zone}", text
        try:
            market = Market.parse(name)
        except (TypeError, ValueError) as error:
            raise InputError(f"--availability: {error}; write TYPE/ZONE=FILE") from None
        if market in traces:
            raise InputError(f"--availability {text}: {market} has a trace already; name the market, as TYPE/ZONE=FILE")
        traces[market] = read_availability(path, begins_s, make)
    return TraceSet(traces)


def _json(source: Source) -> Any:
    try:
        return read_json(source)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{source}: is not JSON ({reason}); fetch the file again") from None


def capacity_file(folder: Path, market: Market) -> Path:
    """Return the file of a market that `write_capacities` writes."""
    return folder / f"{market.zone}_{market.instance_type}.json"


def write_capacities(folder: Path, traces: TraceSet) -> tuple[str, ...]:
    """Write the number of machines of each market to a file of `folder`; return them as ``TYPE/ZONE=FILE``.

    Parameters
    ----------
    traces : counts in steps of equal length (`bidding.synthetic.capacity_market`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = []
    for market, trace in traces.items():
        path = capacity_file(folder, market)
        gap_s = int(trace.times_s[1] - trace.times_s[0]) if len(trace) > 1 else MINUTE_S
        record = {"metadata": {"gap_seconds": gap_s}, "data": trace.prices_micros.tolist()}
        path.write_text(json.dumps(record))
        given.append(f"{market}={path}")
    return tuple(given)
