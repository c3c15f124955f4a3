"""Files about capacity: the spot advisor's bands, and availability traces; every fault is one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from bidding.evictions.fit_capacity import Band, availability_trace
from bidding.market.model import DAY_S, Market
from bidding.market.traces import Trace, TraceSet
from infra.errors import InputError
from infra.files import Source
from infra.structured_text import read_json

#: A step of an availability trace takes minutes; beyond this stands another unit.
_LONGEST_GAP_S = 31 * DAY_S


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
        ranges = sorted((int(one["index"]), int(one["max"])) for one in record["ranges"])
        tops = [top // 5 * 5 / 100 for _, top in ranges]
        ends = [None if top >= 1 else top for top in tops]
        bands = {index: Band(low, high) for (index, _), low, high in zip(ranges, [0.0, *tops[:-1]], ends, strict=True)}
        return {
            str(region): {str(name): bands[int(entry["r"])] for name, entry in systems[system].items()}
            for region, systems in record["spot_advisor"].items()
            if system in systems
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{source}: is no advisor file ({error!r}); "
            "want its `ranges`, and `spot_advisor` by region, system and type"
        ) from None


def read_availability(source: Source, begins_s: int = 0) -> Trace:
    """Return an availability trace as prices (`bidding.evictions.fit_capacity`), from `begins_s` on.

    Parameters
    ----------
    source : JSON ``{"metadata": {"gap_seconds": …}, "data": […]}``, plain or gzipped: number of available machines at
        each step.

    Raises
    ------
    InputError
        If the file does not have this form.
    """
    record = _json(source)
    try:
        gap, up = record["metadata"]["gap_seconds"], record["data"]
        if not isinstance(gap, int) or isinstance(gap, bool) or gap <= 0:
            raise ValueError(f"gap_seconds is {gap!r}, not whole seconds above 0")
        if gap > _LONGEST_GAP_S:
            raise ValueError(f"gap_seconds is {gap}, more than a month")
        bad = next(
            (index for index, entry in enumerate(up) if not isinstance(entry, int | float) or not entry >= 0), None
        )
        if bad is not None:
            raise ValueError(f"data[{bad}] is {up[bad]!r}, not how many machines could be had")
        return availability_trace(up, gap, begins_s)
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        raise InputError(
            f'{source}: is no availability trace ({reason}); want {{"metadata": {{"gap_seconds": …}}, "data": […]}}'
        ) from None


def read_availabilities(given: Sequence[str], begins_s: int = 0) -> TraceSet:
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
        except ValueError as error:
            raise InputError(f"--availability: {error}; write TYPE/ZONE=FILE") from None
        if market in traces:
            raise InputError(f"--availability {text}: {market} has a trace already; name the market, as TYPE/ZONE=FILE")
        traces[market] = read_availability(path, begins_s)
    return TraceSet(traces)


def _json(source: Source) -> Any:
    try:
        return read_json(source)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{source}: is not JSON ({reason}); fetch the file again") from None
