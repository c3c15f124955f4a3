"""DescribeSpotPriceHistory over the traces of a simulated market: in pages, newest first, nothing after now."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from proteus_spot.bidding.market.model import Market
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.wire_protocol import Ec2Error, read_token, write_token

PRODUCT = "Linux/UNIX"
_PAGE = 1000
#: Number of sorted query results in the cache, for the pages that follow.
_CACHED_QUERIES = 8


@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows that answer a query, newest first; `market` holds indices into `markets`."""

    markets: tuple[Market, ...]
    market: npt.NDArray[np.int64]
    times_s: npt.NDArray[np.int64]
    prices_micros: npt.NDArray[np.int64]


class SpotPriceHistory:
    """The price history of one endpoint.

    A page's token holds the end time of the query, so that the pages stay consistent while time passes.
    """

    def __init__(self, market: SimSpotMarket) -> None:
        self._market = market
        self._cache: OrderedDict[tuple[tuple[Market, ...], int, int], _Rows] = OrderedDict()

    def describe(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return one page: the changes in the time range, and the last one before it, whose price held at its start."""
        now_s = self._market.enter("price_history")
        position = read_token(params.get("NextToken"))
        wanted_until_s = int(params["EndTime"].timestamp()) if "EndTime" in params else now_s
        until_s = position["until"] if "until" in position else min(wanted_until_s, now_s)
        from_s = int(params["StartTime"].timestamp()) if "StartTime" in params else self._market.traces.first_s
        rows = self._rows(self._wanted(params), from_s, min(until_s, now_s))
        first = position.get("offset", 0)
        last = first + min(params.get("MaxResults", _PAGE), _PAGE)
        cut = slice(first, last)
        zipped = zip(
            rows.market[cut].tolist(), rows.times_s[cut].tolist(), rows.prices_micros[cut].tolist(), strict=True
        )
        return {
            "SpotPriceHistory": [
                {
                    "AvailabilityZone": rows.markets[index].zone,
                    "InstanceType": rows.markets[index].instance_type,
                    "ProductDescription": PRODUCT,
                    "SpotPrice": f"{price_micros / 1e6:.6f}",
                    "Timestamp": datetime.fromtimestamp(at_s, UTC),
                }
                for index, at_s, price_micros in zipped
            ],
            "NextToken": write_token({"offset": last, "until": until_s}) if last < rows.times_s.size else "",
        }

    def _wanted(self, params: Mapping[str, Any]) -> tuple[Market, ...]:
        types = _as_set(params.get("InstanceTypes"))
        zones = _as_set([params["AvailabilityZone"]] if "AvailabilityZone" in params else None)
        products = _as_set(params.get("ProductDescriptions"))
        for condition in params.get("Filters", ()):
            values = _as_set(condition.get("Values", ()))
            match condition.get("Name"):
                case "instance-type":
                    types = _intersect(types, values)
                case "availability-zone":
                    zones = _intersect(zones, values)
                case "product-description":
                    products = _intersect(products, values)
                case name:
                    raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
        if products is not None and PRODUCT not in products:
            return ()
        return tuple(
            market
            for market in self._market.traces.markets
            if (types is None or market.instance_type in types) and (zones is None or market.zone in zones)
        )

    def _rows(self, markets: tuple[Market, ...], from_s: int, until_s: int) -> _Rows:
        key = (markets, from_s, until_s)
        if key not in self._cache:
            parts = [self._market.traces[market].between(from_s, until_s) for market in markets]
            index = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            times_s = np.concatenate([np.empty(0, np.int64), *(part.times_s for part in parts)])
            prices_micros = np.concatenate([np.empty(0, np.int64), *(part.prices_micros for part in parts)])
            order = np.lexsort((index, -times_s))
            self._cache[key] = _Rows(markets, index[order], times_s[order], prices_micros[order])
            if len(self._cache) > _CACHED_QUERIES:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key]


def _as_set(values: Iterable[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)


def _intersect(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    return second if first is None or second is None else first & second
