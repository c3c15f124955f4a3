"""Observed spot prices, stored permanently; AWS itself keeps 90 days.

Segments of Parquet (the columns of a price file, with source and time of observation of each row) are stored under
``prices/``. A segment counts once the index names it, and the index is written last. So an interrupted run leaves at
most a segment that is never read, and the next run fetches the same prices again.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from proteus_spot.bidding.market.model import Market, PricePoint
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.storage.blobs import BlobMissing, Blobs, DamagedSet

_INDEX = "prices/index.json"
_PRODUCT = "Linux/UNIX"
#: Maximum number of segments; if there are more they are merged into one.
_MOST_SEGMENTS = 48
#: Key of a row: a market has one price at a time.
_KEY = ("instance_type", "az", "timestamp")


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of observed prices.

    Attributes
    ----------
    from_s, until_s : the requested time window, market time.
    markets : the requested markets, sorted.
    """

    name: str
    rows: int
    from_s: int
    until_s: int
    markets: tuple[str, ...]


class PriceStore:
    """Observed prices under a blob store. One writer at a time; any number of readers."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def segments(self) -> tuple[Segment, ...]:
        """Return what the index names, oldest first.

        Raises
        ------
        DamagedSet
            If the index is not what this class writes.
        """
        try:
            return tuple(map(_segment, self._blobs.read_json(_INDEX)["segments"]))
        except BlobMissing:
            return ()
        except (KeyError, TypeError, RecursionError):
            raise DamagedSet(
                f"{self._blobs.url_of(_INDEX)}: is not an index of prices; restore it from a copy"
            ) from None

    def observed_until_s(self, market: Market) -> int | None:
        """Return the time up to which the market's prices were observed; None if they never were."""
        return max((s.until_s for s in self.segments() if str(market) in s.markets), default=None)

    def add(
        self,
        points: Sequence[PricePoint],
        markets: Sequence[Market],
        window: tuple[int, int],
        source: str,
        observed_at_s: int,
    ) -> int:
        """Add the prices observed for `window`; return the number of new rows.

        Parameters
        ----------
        points : the prices, in any order; stored ones are skipped.
        markets : the requested markets, with or without prices.
        window : start and end, market time.
        source : source of the prices, such as the API's address.
        observed_at_s : time of the observation, market time.
        """
        new_rows = self._new_rows(_table(points, source, observed_at_s), markets)
        names = tuple(sorted(map(str, markets)))
        segment = Segment(self._write(new_rows, observed_at_s), new_rows.num_rows, window[0], window[1], names)
        self._publish([*self.segments(), segment])
        return int(new_rows.num_rows)

    def read(self, markets: Sequence[Market], from_s: int, until_s: int) -> TraceSet:
        """Return the traces of `markets` in [from_s, until_s], with the prices that hold at `from_s`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = [self._read(segment) for segment in self.segments() if segment.rows]
        if not tables:
            return TraceSet({})
        table = pa.concat_tables(tables).sort_by([("timestamp", "ascending")])
        names = pc.binary_join_element_wise(table["instance_type"], table["az"], "/")
        traces = {}
        for market in sorted(set(markets)):
            rows = table.filter(pc.equal(names, str(market)))
            times = rows["timestamp"].cast(pa.int64()).to_numpy()
            prices = np.rint(rows["price"].to_numpy() * MICROS_PER_DOLLAR).astype(np.int64)
            traces[market] = Trace(times, prices).between(from_s, until_s)
        return TraceSet(traces)

    def _new_rows(self, table: Any, markets: Sequence[Market]) -> Any:
        """Return the rows of `table` that are not stored yet, without duplicates, by market and time."""
        new_rows = table.group_by(list(_KEY), use_threads=False).aggregate(
            [(name, "first") for name in table.column_names if name not in _KEY]
        )
        new_rows = new_rows.rename_columns([name.removesuffix("_first") for name in new_rows.column_names])
        new_rows = new_rows.select(table.column_names)
        wanted = {str(market) for market in markets}
        for segment in self.segments():
            if segment.rows and wanted.intersection(segment.markets):
                new_rows = new_rows.join(self._read(segment).select(list(_KEY)), keys=list(_KEY), join_type="left anti")
        return new_rows.sort_by([(name, "ascending") for name in _KEY])

    def _publish(self, segments: Sequence[Segment]) -> None:
        """Write `segments` to the index; merge them first if there are too many."""
        live = list(segments)
        if len(live) > _MOST_SEGMENTS:
            live = [self._merged(live)]
        self._blobs.write_json(_INDEX, {"version": 1, "segments": [asdict(segment) for segment in live]})
        dropped = {segment.name for segment in segments} - {segment.name for segment in live}
        for name in sorted(dropped):
            self._blobs.remove(name)

    def _merged(self, segments: Sequence[Segment]) -> Segment:
        """Return one segment with the rows of all; its window ends with the earliest end among the markets."""
        import pyarrow as pa

        table = pa.concat_tables([self._read(segment) for segment in segments])
        table = table.sort_by([(name, "ascending") for name in _KEY])
        until: dict[str, int] = {}
        for segment in segments:
            until.update({name: max(segment.until_s, until.get(name, 0)) for name in segment.markets})
        first = replace(segments[0], from_s=min(segment.from_s for segment in segments))
        name = self._write(table, min(until.values()))
        return replace(first, name=name, rows=table.num_rows, until_s=min(until.values()), markets=tuple(sorted(until)))

    def _write(self, table: Any, stamp_s: int) -> str:
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        data = buffer.getvalue()
        name = f"prices/{stamp_s:012d}{_ending(data)}"
        self._blobs.write_bytes(name, data)
        return name

    def _read(self, segment: Segment) -> Any:
        import pyarrow.parquet as pq

        data = self._blobs.read_bytes(segment.name)
        if not segment.name.endswith(_ending(data)):
            raise DamagedSet(
                f"{self._blobs.url_of(segment.name)}: is not what was written (its digest differs); restore "
                f"it from a copy"
            )
        table = pq.read_table(io.BytesIO(data))
        return table.cast(_schema())  # Parquet knows no seconds: it gives milliseconds back


def _second() -> Any:
    import pyarrow as pa  # a tenth of a second, which most processes that know of this module do not need

    return pa.timestamp("s", tz="UTC")


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("timestamp", _second()),
            ("instance_type", pa.string()),
            ("az", pa.string()),
            ("product", pa.string()),
            ("price", pa.float64()),
            ("source", pa.string()),
            ("observed_at", _second()),
        ]
    )


def _ending(data: bytes) -> str:
    """Return what the name of a segment with this content ends with."""
    return f"-{sha256(data).hexdigest()[:12]}.parquet"


def _segment(row: Any) -> Segment:
    """Return the segment of a row of the index; `KeyError` or `TypeError` where it is none."""
    name, markets, numbers = row["name"], row["markets"], [row[key] for key in ("rows", "from_s", "until_s")]
    if not (isinstance(name, str) and isinstance(markets, list) and all(isinstance(each, str) for each in markets)):
        raise TypeError("a segment has a name, and names of markets")
    if not all(type(each) is int for each in numbers):
        raise TypeError("a segment has a number of rows, and a window in whole seconds")
    return Segment(name, numbers[0], numbers[1], numbers[2], tuple(markets))


def _table(points: Sequence[PricePoint], source: str, observed_at_s: int) -> Any:
    """Return the rows of a segment."""
    import pyarrow as pa

    columns: Mapping[str, Any] = {
        "timestamp": pa.array([point.at_s for point in points], pa.int64()).cast(_second()),
        "instance_type": [point.market.instance_type for point in points],
        "az": [point.market.zone for point in points],
        "product": [_PRODUCT] * len(points),
        "price": [point.price_micros / MICROS_PER_DOLLAR for point in points],
        "source": [source] * len(points),
        "observed_at": pa.array([observed_at_s] * len(points), pa.int64()).cast(_second()),
    }
    return pa.table(columns, schema=_schema())
