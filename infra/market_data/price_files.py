"""Price files: read with checks, written atomically; every fault is one line."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import DAY_S, Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, packed, read_whole, write_whole
from proteus_spot.infra.market_data.price_formats import AWS_ENTRIES, CURRENCY, read_table

#: The product of most price files.
LINUX = "Linux/UNIX"

Codes = npt.NDArray[np.int64]

_MONTH_US = 30 * DAY_S * 1_000_000
#: A file in which nothing happens for longer holds a mistyped year.
_MOST_MONTHS_APART = 36
#: Times of spot prices, with room on both sides; what lies outside has another unit than it says, or a wrong year.
_FIRST_US, _END_US = (int(np.datetime64(day, "us").astype(np.int64)) for day in ("2000-01-01", "2200-01-01"))

#: Dearer by far than any machine by the hour; a price beyond it is a mistake in the file.
_MOST_USD_PER_H = 10_000.0


def read_prices(source: Source, *, product: str | None = None, catalog: Catalog | None = None) -> TraceSet:
    """Return the traces of a price file.

    Parameters
    ----------
    source : str or Path
        A path, or an fsspec URL. One of these forms, recognized by content, each also gzipped: CSV with the columns
        ``timestamp,instance_type,az,product,price`` (or as the aws command calls them: ``Timestamp,InstanceType,
        AvailabilityZone,ProductDescription,SpotPrice``); Parquet of the same columns; what
        ``aws ec2 describe-spot-price-history`` prints, as JSON (documents, the bare list of their entries, or one entry
        a line, the price a text or a number) or as ``--output text``. Text is UTF-8, or UTF-16 with a byte order mark.
        Times carry a zone (``Z``); a price is in dollars per instance-hour; rows are in time order within a market,
        oldest or newest first; what the aws command prints may be in any order. Further columns are passed over, but
        ``currency``, where there is one, must be USD.
    product : str, optional
        Read the rows of this product only; required if the file has several.
    catalog : Catalog, optional
        Every instance type must be in it, in the region of its zone.

    Raises
    ------
    InputError
        One line with the file, the row if there is one, and the fix. Rows count from 1: in CSV the header is row 1, in
        Parquet the first row of data; in JSON entries count over all pages.
    """
    found = read_table(source, read_whole(source))
    table = found.columns
    if not table.num_rows:
        raise InputError(f"{source}: has no rows; give a file with prices")
    rows = _rows_of_one_product(source, table, product, found.place)
    if len(rows) < table.num_rows:
        table = table.take(pa.array(rows))

    def place(index: int) -> str:
        return f"{source}: {found.place(int(rows[index]))}"

    _check_currency(table, place)
    prices_micros = _prices_micros(table, place)
    times_us = _times_us(table, place)
    _check_years(times_us, place)
    types, type_codes = _coded(table, "instance_type", place)
    zones, zone_codes = _coded(table, "az", place)
    codes = type_codes * len(zones) + zone_codes
    if catalog is not None:
        _check_known(types, zones, codes, catalog, place)
    order = _time_order(codes, times_us, found.newest_first, place)
    codes, times_s, prices_micros = codes[order], times_us[order] // 1_000_000, prices_micros[order]
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    traces = {}
    for start, end in itertools.pairwise(bounds):
        type_code, zone_code = divmod(int(codes[start]), len(zones))
        traces[Market(types[type_code], zones[zone_code])] = Trace(times_s[start:end], prices_micros[start:end])
    return TraceSet(traces)


def write_prices(target: Source, traces: TraceSet, product: str = LINUX) -> None:
    """Write `traces` atomically as a price file from which `read_prices` returns the same traces.

    The ending of the name decides the form (`PRICE_ENDINGS`); any other ending gives a CSV.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    name = str(target)
    zipped = name.endswith(".gz")
    make = next((form for ending, form in _FORMS.items() if name.removesuffix(".gz").endswith(ending)), _csv_bytes)
    data = make(_table(traces, product))
    write_whole(target, packed(data) if zipped else data)


def check_price_name(target: Source) -> None:
    """Refuse a name whose ending is not that of a price file."""
    name = str(target)
    if name.removesuffix(".gz").endswith(tuple(_FORMS)) and not name.endswith(".parquet.gz"):
        return
    raise InputError(f"{target}: the name's ending says the form; end it with {', '.join(PRICE_ENDINGS)}")


# Checks


def _first_fault(bad: npt.NDArray[np.bool_]) -> int | None:
    index = int(bad.argmax()) if bad.size else 0
    return index if bad.size and bad[index] else None


def _rows_of_one_product(
    source: Source, table: pa.Table, product: str | None, place: Callable[[int], str]
) -> npt.NDArray[np.int64]:
    products, codes = _dictionary(table["product"])
    if product is not None:
        rows = np.flatnonzero(codes == products.index(product)) if product in products else np.empty(0, np.int64)
        if not rows.size:
            has = ", ".join(repr(text) for text in sorted(set(products) - {""}))
            raise InputError(f"{source}: has no rows of product {product!r}; it has {has or 'none'}")
        return rows
    if not products[codes[0]]:
        raise InputError(f"{source}: {place(0)}: no product; write it as {LINUX}")
    other = _first_fault(codes != codes[0])
    if other is not None:
        if not products[codes[other]]:
            raise InputError(f"{source}: {place(other)}: no product; write it as {LINUX}")
        first, second = products[codes[0]], products[codes[other]]
        raise InputError(
            f"{source}: {place(other)}: products {second!r} and {first!r}; choose one, as in --product {first!r} "
            f"(proteus traces convert makes a file of it)"
        )
    return np.arange(table.num_rows)


def _check_currency(table: pa.Table, place: Callable[[int], str]) -> None:
    if CURRENCY not in table.column_names:
        return
    currencies, codes = _dictionary(table[CURRENCY])
    other = _first_fault(~np.isin(codes, [code for code, text in enumerate(currencies) if text == "USD"]))
    if other is not None:
        found = f"currency {currencies[codes[other]]!r}"
        if other:
            found = f"currencies {currencies[codes[other]]!r} and {currencies[codes[0]]!r}"
        raise InputError(f"{place(other)}: {found}; give prices in USD alone")


def _prices_micros(table: pa.Table, place: Callable[[int], str]) -> npt.NDArray[np.int64]:
    prices = table["price"].to_numpy()
    micros = np.rint(prices * MICROS_PER_DOLLAR)
    fault = _first_fault(~((micros >= 1) & (prices <= _MOST_USD_PER_H)))
    if fault is not None:
        value = table["price"][fault].as_py()
        shown = "no price" if value is None else f"a price of {value:g}"
        raise InputError(f"{place(fault)}: {shown}; write dollars per hour above 0, as in 0.0324")
    whole: npt.NDArray[np.int64] = micros.astype(np.int64)
    return whole


def _times_us(table: pa.Table, place: Callable[[int], str]) -> npt.NDArray[np.int64]:
    column = table["timestamp"]
    if column.null_count:
        row = int(column.is_null().to_numpy().argmax())
        raise InputError(f"{place(row)}: no time; write it as 2016-04-01T12:30:00Z")
    times_us: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return times_us


def _coded(table: pa.Table, name: str, place: Callable[[int], str]) -> tuple[list[str], Codes]:
    """Return the distinct texts of a column and each row's index among them."""
    texts, codes = _dictionary(table[name])
    unusable = [code for code, text in enumerate(texts) if not text or "/" in text or text != text.strip()]
    fault = _first_fault(np.isin(codes, unusable))
    if fault is not None:
        raise InputError(f"{place(fault)}: {texts[codes[fault]]!r} is not an {name}; fix the row")
    return texts, codes


def _dictionary(column: Any) -> tuple[list[str], Codes]:
    """Return the distinct texts of a dictionary column, and each row's index among them; ``""`` for missing values."""
    column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    texts = [text or "" for text in column.dictionary.to_pylist()]
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts.append("")
    codes: Codes = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return texts, codes


def _check_known(
    types: list[str], zones: list[str], codes: Codes, catalog: Catalog, place: Callable[[int], str]
) -> None:
    faults = {
        code: fault
        for code in np.unique(codes).tolist()
        if (fault := catalog.fault(Market(types[code // len(zones)], zones[code % len(zones)]))) is not None
    }
    row = _first_fault(np.isin(codes, list(faults)))
    if row is not None:
        raise InputError(f"{place(row)}: {faults[int(codes[row])]}; give a --catalog that has it")


def _check_years(times_us: npt.NDArray[np.int64], place: Callable[[int], str]) -> None:
    """Refuse a time that lies years away from all others: a year that was mistyped, or a zero."""
    first_us, last_us = int(times_us.min()), int(times_us.max())
    outside = (times_us < _FIRST_US) | (times_us >= _END_US)
    row = _first_fault(outside)
    alone = "is not of 2000 to 2200; fix the year, or the unit of the times"
    if row is None and last_us - first_us > _MOST_MONTHS_APART * _MONTH_US:
        months = (times_us - first_us) // _MONTH_US
        filled = np.flatnonzero(np.bincount(months))
        gap = int(np.diff(filled).argmax())
        if filled[gap + 1] - filled[gap] > _MOST_MONTHS_APART:
            late = months >= filled[gap + 1]
            outside = late if 2 * np.count_nonzero(late) <= len(late) else ~late
            row = _first_fault(outside)
    if row is None:
        return
    shown = np.datetime64(int(times_us[row]) // 1_000_000, "s")
    others = "is years away from the others; fix the year, or give the years in files of their own"
    raise InputError(f"{place(row)}: the time {shown}Z {alone if outside.all() else others}")


def _time_order(
    codes: Codes, times_us: npt.NDArray[np.int64], newest_first: bool, place: Callable[[int], str]
) -> npt.NDArray[np.int64]:
    """Return the rows market by market, in time order; of those in one moment, the one that counts comes last.

    A file that goes backwards in every market is newest first. One that does not go one way is sorted where its form
    may be in any order, and else refused.
    """
    order = np.argsort(codes, kind="stable")
    within = np.diff(codes[order]) == 0
    steps = np.diff(times_us[order] // 1_000_000)
    falls, rises = bool((within & (steps < 0)).any()), bool((within & (steps > 0)).any())
    if falls and rises and not newest_first:
        backwards = _first_fault(within & (steps < 0))
        assert backwards is not None
        raise InputError(
            f"{place(int(order[backwards + 1]))}: earlier than the market's row before it; sort the file by time"
        )
    if (newest_first and falls) or (not rises and (newest_first or falls)):
        back = np.arange(len(codes))[::-1]
        return back[np.lexsort((times_us[::-1], codes[::-1]))]
    return order


# Writing


def _table(traces: TraceSet, product: str) -> pa.Table:
    """Return the rows of `traces`, market after market, with prices as exact decimals."""
    rows = [len(trace) for trace in traces.values()]
    times_s = np.concatenate([trace.times_s for trace in traces.values()] or [np.empty(0, np.int64)])
    micros = np.concatenate([trace.prices_micros for trace in traces.values()] or [np.empty(0, np.int64)])
    return pa.table(
        {
            "timestamp": pa.array(times_s.astype("datetime64[s]")).cast(pa.timestamp("s", tz="UTC")),
            "instance_type": _repeated([market.instance_type for market in traces], rows),
            "az": _repeated([market.zone for market in traces], rows),
            "product": _repeated([product], [sum(rows)]),
            "price": _decimals(micros),
        }
    )


def _repeated(texts: list[str], counts: list[int]) -> pa.Array:
    codes = np.repeat(np.arange(len(texts), dtype=np.int32), counts)
    return pa.DictionaryArray.from_arrays(codes, pa.array(texts, pa.string()))


def _decimals(micros: npt.NDArray[np.int64]) -> pa.Array:
    """Return micro-dollars as decimals of six places, without rounding through floats."""
    words = np.zeros((micros.size, 2), dtype="<i8")
    words[:, 0] = micros
    return pa.Array.from_buffers(pa.decimal128(18, 6), micros.size, [None, pa.py_buffer(words.tobytes())])


def _times_text(table: pa.Table) -> pa.Array:
    times = table["timestamp"].combine_chunks().cast(pa.int64()).to_numpy().astype("datetime64[s]")
    return pa.array(np.char.add(np.datetime_as_string(times), "Z"), pa.string())


def _csv_bytes(table: pa.Table) -> bytes:
    columns = {name: table[name].cast(pa.string()) for name in ("instance_type", "az", "product")}
    plain = pa.table({"timestamp": _times_text(table), **columns, "price": table["price"]})
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(plain, sink, pa_csv.WriteOptions(quoting_style="none", quoting_header="none"))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _parquet_bytes(table: pa.Table) -> bytes:
    # Floats, because many readers turn decimals into slow objects; they are exact to the micro-dollar.
    price = table.column_names.index("price")
    table = table.set_column(price, "price", table["price"].cast(pa.float64()))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _json_bytes(table: pa.Table) -> bytes:
    """Return JSON as the aws command prints it: one document, newest first, prices as text."""
    table = table.take(pc.sort_indices(table, [("timestamp", "descending")]))

    def text(of: pa.Array) -> pa.Array:
        return of.cast(pa.large_string())

    def quoted(name: str) -> pa.Array:
        texts, codes = _dictionary(table[name])
        return pa.array([json.dumps(each) for each in texts], pa.large_string()).take(pa.array(codes))

    parts = [
        '        {\n            "AvailabilityZone": ',
        quoted("az"),
        ',\n            "InstanceType": ',
        quoted("instance_type"),
        ',\n            "ProductDescription": ',
        quoted("product"),
        ',\n            "SpotPrice": "',
        text(table["price"].combine_chunks()),
        '",\n            "Timestamp": "',
        text(_times_text(table)),
        '"\n        },\n',
        "",  # the separator of the parts
    ]
    parts = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    # The texts of an array are contiguous in its last buffer: no need to join them.
    entries = (
        pc.binary_join_element_wise(*parts).buffers()[2].to_pybytes().removesuffix(b",\n") if table.num_rows else b""
    )
    return b'{\n    "%s": [\n%s\n    ]\n}\n' % (AWS_ENTRIES.encode(), entries)


_FORMS = {".csv": _csv_bytes, ".parquet": _parquet_bytes, ".json": _json_bytes}
PRICE_ENDINGS = (".csv", ".csv.gz", ".parquet", ".json", ".json.gz")
