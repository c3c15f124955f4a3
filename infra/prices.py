"""Price files and catalogues: read with one clear line on what is wrong with them, written whole or not at all."""

import csv
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from bidding.catalog import Catalog, CatalogRow
from bidding.model import InstanceType, Market
from bidding.money import MICROS_PER_DOLLAR, to_micros
from bidding.traces import Trace, TraceSet
from infra.errors import InputError

PRICE_COLUMNS = ("timestamp", "instance_type", "az", "product", "price")
CATALOG_COLUMNS = ("instance_type", "region", "vcpu", "memory_gib", "on_demand_usd_per_h")

_GZIP_MAGIC = b"\x1f\x8b"
#: Dearer by far than any machine by the hour; a price beyond it is a mistake in the file.
_MOST_USD_PER_H = 10_000.0
#: The header is row 1, as an editor counts.
_FIRST_ROW = 2


def read_prices(path: str | Path) -> TraceSet:
    """Return the traces of a price file.

    Parameters
    ----------
    path : str or Path
        CSV with the columns ``timestamp,instance_type,az,product,price``, plain or gzipped (told apart by content).
        Times carry a zone (``Z``); a price is in dollars per instance-hour; rows are in time order within a market.

    Raises
    ------
    InputError
        One line with the file, the row where there is one, and the mend.
    """
    path = Path(path)
    table = _read_table(path)
    if not table.num_rows:
        raise InputError(f"{path}: has a header and no rows; give a file with prices")
    _check_one_product(path, table)
    prices_micros = _prices_micros(path, table)
    times_s = _times_s(path, table)
    types, type_codes = _coded(path, table, "instance_type")
    zones, zone_codes = _coded(path, table, "az")
    codes = type_codes * len(zones) + zone_codes
    order = np.argsort(codes, kind="stable")
    codes, times_s, prices_micros = codes[order], times_s[order], prices_micros[order]
    new_market = np.flatnonzero(np.diff(codes)) + 1
    _check_time_order(path, codes, times_s, order)
    bounds = [0, *new_market.tolist(), len(codes)]
    traces = {}
    for start, end in itertools.pairwise(bounds):
        type_code, zone_code = divmod(int(codes[start]), len(zones))
        traces[Market(types[type_code], zones[zone_code])] = Trace(times_s[start:end], prices_micros[start:end])
    return TraceSet(traces)


def write_prices(path: str | Path, traces: TraceSet, product: str = "Linux/UNIX") -> None:
    """Write `traces` as a price file that `read_prices` reads back to the same; gzipped where the name ends in ``.gz``.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    path = Path(path)
    rows = [len(trace) for trace in traces.values()]
    times_s = np.concatenate([trace.times_s for trace in traces.values()] or [np.empty(0, np.int64)])
    micros = np.concatenate([trace.prices_micros for trace in traces.values()] or [np.empty(0, np.int64)])
    table = pa.table(
        {
            "timestamp": pa.array(np.char.add(np.datetime_as_string(times_s.astype("datetime64[s]")), "Z")),
            "instance_type": _repeated([market.instance_type for market in traces], rows),
            "az": _repeated([market.zone for market in traces], rows),
            "product": _repeated([product], [sum(rows)]),
            "price": _decimals(micros),
        }
    )
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    options = pa_csv.WriteOptions(quoting_style="none", quoting_header="none")
    try:
        with pa.output_stream(str(scratch), compression="gzip" if path.suffix == ".gz" else None) as stream:
            pa_csv.write_csv(table, stream, options)
        scratch.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({_first_line(error)}); give another place") from None
    finally:
        scratch.unlink(missing_ok=True)


def read_catalog(path: str | Path | None = None) -> Catalog:
    """Return the catalogue of a CSV file; None reads the shipped one (us-east-1, as of 2016).

    The columns are ``instance_type,region,vcpu,memory_gib,on_demand_usd_per_h`` and, where prices change,
    ``from_date``: a row holds from that day until the type's next row.

    Raises
    ------
    InputError
        One line with the file, the row where there is one, and the mend.
    """
    if path is None:
        with as_file(files("infra") / "data" / "catalog.csv") as shipped:
            return Catalog(_catalog_rows(shipped))
    return Catalog(_catalog_rows(Path(path)))


# Price files


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into one line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; name a file in it") from None
    except PermissionError:
        raise InputError(f"{path}: may not be read by this user; change its permissions") from None


def _read_table(path: Path) -> pa.Table:
    with _readable(path), path.open("rb") as file:
        compression = "gzip" if file.read(2) == _GZIP_MAGIC else None
        header = pa.input_stream(str(path), compression=compression)
        with header, suppress(OSError, pa.ArrowInvalid):  # what is wrong with the stream is said below
            _check_header(path, header.read(4096))
        try:
            return _parse(path, compression, use_threads=True)
        except (pa.ArrowInvalid, OSError):
            pass
        try:
            # Only the serial reader counts rows, so it is asked where the fault is.
            return _parse(path, compression, use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{path}: {_parse_fault(str(error))}") from None


def _parse(path: Path, compression: str | None, *, use_threads: bool) -> pa.Table:
    with pa.input_stream(str(path), compression=compression) as stream:
        return pa_csv.read_csv(
            stream,
            read_options=pa_csv.ReadOptions(use_threads=use_threads),
            convert_options=pa_csv.ConvertOptions(
                include_columns=PRICE_COLUMNS,
                column_types={
                    "timestamp": pa.timestamp("us", tz="UTC"),
                    "instance_type": pa.dictionary(pa.int32(), pa.string()),
                    "az": pa.dictionary(pa.int32(), pa.string()),
                    "product": pa.dictionary(pa.int32(), pa.string()),
                    "price": pa.float64(),
                },
            ),
        )


def _check_header(path: Path, head: bytes) -> None:
    if not head.strip():
        raise InputError(f"{path}: is empty; give a file with the columns {','.join(PRICE_COLUMNS)}")
    line = head.removeprefix(b"\xef\xbb\xbf").splitlines()[0].decode(errors="replace")
    names = [name.strip().strip('"') for name in line.split(",")]
    missing = [name for name in PRICE_COLUMNS if name not in names]
    if missing:
        raise InputError(
            f"{path}: the header (row 1) lacks {', '.join(missing)}; the columns are {','.join(PRICE_COLUMNS)}"
        )


def _parse_fault(message: str) -> str:
    """Return what the CSV reader or the decompressor says, in one line of ours."""
    message = " ".join(message.split())
    row = re.search(r"Row #(\d+)", message)
    place = f"row {row[1]}: " if row else ""
    if re.search(r"truncated|ended before|unexpected end|zlib|gzip", message, re.IGNORECASE):
        return "the gzip stream is damaged or cut short; fetch the file again"
    if expected := re.search(r"Expected (\d+) columns, got (\d+)", message):
        return f"{place}has {expected[2]} columns where the header has {expected[1]}; mend the row"
    value = re.search(r"invalid value '(.*)'", message)
    shown = repr(value[1]) if value else "what stands there"
    if "timestamp" in message or "zone offset" in message:
        return f"{place}{shown} is not a time; write it as 2016-04-01T12:30:00Z"
    if "double" in message:
        return f"{place}{shown} is not a price; write dollars per hour, as in 0.0324"
    if "utf8" in message.lower():
        return f"{place}is not UTF-8 text; give a CSV file, plain or gzipped"
    return f"{place}{message[:200]}"


def _first_fault(bad: npt.NDArray[np.bool_]) -> int | None:
    index = int(bad.argmax()) if bad.size else 0
    return index if bad.size and bad[index] else None


def _prices_micros(path: Path, table: pa.Table) -> npt.NDArray[np.int64]:
    prices = table["price"].to_numpy()
    micros = np.rint(prices * MICROS_PER_DOLLAR)
    fault = _first_fault(~((micros >= 1) & (prices <= _MOST_USD_PER_H)))
    if fault is not None:
        value = table["price"][fault].as_py()
        shown = "no price" if value is None else f"a price of {value:g}"
        raise InputError(f"{path}: row {fault + _FIRST_ROW}: {shown}; write dollars per hour above 0, as in 0.0324")
    whole: npt.NDArray[np.int64] = micros.astype(np.int64)
    return whole


def _times_s(path: Path, table: pa.Table) -> npt.NDArray[np.int64]:
    column = table["timestamp"]
    if column.null_count:
        row = int(column.is_null().to_numpy().argmax()) + _FIRST_ROW
        raise InputError(f"{path}: row {row}: no time; write it as 2016-04-01T12:30:00Z")
    times_s: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy() // 1_000_000
    return times_s


def _coded(path: Path, table: pa.Table, name: str) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct texts of a column and each row's index among them."""
    column = table[name].unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    texts = column.dictionary.to_pylist()
    codes: npt.NDArray[np.int64] = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    unusable = [code for code, text in enumerate(texts) if not text or "/" in text]
    if unusable:
        row = int(np.isin(codes, unusable).argmax())
        raise InputError(f"{path}: row {row + _FIRST_ROW}: {texts[codes[row]]!r} is not an {name}; mend the row")
    return texts, codes


def _check_one_product(path: Path, table: pa.Table) -> None:
    products = table["product"].unify_dictionaries().combine_chunks()
    if isinstance(products, pa.ChunkedArray):
        products = products.chunk(0)
    codes = products.indices.to_numpy(zero_copy_only=False)
    other = _first_fault(codes != codes[0])
    if other is not None:
        first, second = (products[row].as_py() for row in (0, other))
        raise InputError(
            f"{path}: row {other + _FIRST_ROW}: product {second!r} beside {first!r}; keep the rows of one product"
        )


def _check_time_order(
    path: Path, codes: npt.NDArray[np.int64], times_s: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> None:
    backwards = _first_fault((np.diff(codes) == 0) & (np.diff(times_s) < 0))
    if backwards is not None:
        row = int(order[backwards + 1]) + _FIRST_ROW
        raise InputError(f"{path}: row {row}: earlier than the market's row before it; sort the file by time")


def _repeated(texts: list[str], counts: list[int]) -> pa.Array:
    codes = np.repeat(np.arange(len(texts), dtype=np.int32), counts)
    return pa.DictionaryArray.from_arrays(codes, pa.array(texts, pa.string())).cast(pa.string())


def _decimals(micros: npt.NDArray[np.int64]) -> pa.Array:
    """Return micro-dollars as decimals of six places, without a float in between."""
    words = np.zeros((micros.size, 2), dtype="<i8")
    words[:, 0] = micros
    return pa.Array.from_buffers(pa.decimal128(18, 6), micros.size, [None, pa.py_buffer(words.tobytes())])


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


# Catalogues


def _catalog_rows(path: Path) -> Iterable[CatalogRow]:
    with _readable(path):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not UTF-8 text; give a catalogue as CSV") from None
    lines = text.splitlines()
    reader = csv.DictReader(lines)
    missing = [name for name in CATALOG_COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path}: the header (row 1) lacks {', '.join(missing)}; the columns are {','.join(CATALOG_COLUMNS)}"
        )
    rows: list[CatalogRow] = []
    seen: dict[tuple[str, date | None], int] = {}
    regions: dict[str, int] = {}
    for raw in reader:
        where = f"{path}: row {reader.line_num}"
        row = _catalog_row(where, raw)
        if row is None:
            continue
        key = (row.instance_type.name, row.from_day)
        if key in seen:
            raise InputError(f"{where}: {key[0]} stands in row {seen[key]} already, from the same day; keep one")
        seen[key] = reader.line_num
        regions.setdefault(raw["region"], reader.line_num)
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: has a header and no rows; give a catalogue with instance types")
    if len(regions) > 1:
        first, second = list(regions)[:2]
        raise InputError(
            f"{path}: row {regions[second]}: region {second!r} beside {first!r}; keep the rows of one region"
        )
    return rows


def _catalog_row(where: str, raw: dict[str, Any]) -> CatalogRow | None:
    """Return the row; None for a type that is not sold on demand (no price, or 0, as in price lists of AWS)."""
    if None in raw or None in raw.values():
        raise InputError(f"{where}: has another number of columns than the header; mend the row")
    name = raw["instance_type"].strip()
    try:
        vcpu, memory_gib = int(raw["vcpu"]), float(raw["memory_gib"])
        on_demand_micros = to_micros(raw["on_demand_usd_per_h"].strip() or 0)
        from_day = date.fromisoformat(raw["from_date"]) if raw.get("from_date") else None
    except ValueError as error:
        raise InputError(f"{where}: {_first_line(error)}; mend the row") from None
    if not name or "/" in name:
        raise InputError(f"{where}: {name!r} is not an instance_type; mend the row")
    if not (vcpu > 0 and 0 <= memory_gib < float("inf") and on_demand_micros >= 0):
        raise InputError(f"{where}: vcpu must be above 0, memory_gib and on_demand_usd_per_h not below")
    if not on_demand_micros:
        return None
    return CatalogRow(InstanceType(name, vcpu, memory_gib, on_demand_micros), from_day)
