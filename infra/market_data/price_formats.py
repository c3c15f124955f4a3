"""The forms of a price file, each read into the same columns by Arrow; told apart by content, not by name.

CSV (plain or gzipped), Parquet, and the JSON that ``aws ec2 describe-spot-price-history`` prints. What a column may
hold is the business of `infra.market_data.price_files`; here a value is only brought into its type.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from infra.errors import InputError
from infra.files import Source, damaged, is_packed, unpacked

PRICE_COLUMNS = ("timestamp", "instance_type", "az", "product", "price")
#: A column that may be there besides; every other one is passed over.
CURRENCY = "currency"

_TIME = pa.timestamp("us", tz="UTC")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"timestamp": _TIME, "instance_type": _TEXT, "az": _TEXT, "product": _TEXT, "price": pa.float64()}
_AWS_NAMES = {
    "timestamp": "Timestamp",
    "instance_type": "InstanceType",
    "az": "AvailabilityZone",
    "product": "ProductDescription",
    "price": "SpotPrice",
}
AWS_ENTRIES = "SpotPriceHistory"

_PARQUET_MAGIC = b"PAR1"
_MARK = b"\xef\xbb\xbf"
_TIME_FORM = "2016-04-01T12:30:00Z"
#: Arrow's JSON reader counts bytes in 32 bits, and needs a whole document in one block.
_MOST_JSON_BYTES = 2**31 - 2


@dataclass(frozen=True)
class PriceTable:
    """The rows of a price file.

    Attributes
    ----------
    columns : pyarrow.Table
        `PRICE_COLUMNS`, and ``currency`` where the file has it: time in UTC, text as dictionaries, price as float64.
    newest_first : bool
        Whether the form comes newest first and has yet to be sorted.
    place : callable
        Names the place of a row, counted from 0, in the words of the form.
    """

    columns: pa.Table
    newest_first: bool
    place: Callable[[int], str]


def read_table(source: Source, data: bytes) -> PriceTable:
    """Return the rows of the price file with the content `data`; `source` is its name in errors."""
    if data.startswith(_PARQUET_MAGIC):
        return _read_parquet(source, data)
    head = _head(source, data)
    if not head.strip():
        raise InputError(f"{source}: is empty; give a file with the columns {','.join(PRICE_COLUMNS)}")
    if head.startswith(_PARQUET_MAGIC):
        return _read_parquet(source, unpacked(source, data))
    if b"\0" in head:
        raise InputError(f"{source}: is a binary file; give prices as CSV, Parquet, or JSON of the aws command")
    if head.lstrip()[:1] in (b"{", b"["):
        return _read_json(source, unpacked(source, data).removeprefix(_MARK))
    return _read_csv(source, data, head)


def _head(source: Source, data: bytes) -> bytes:
    """Return some of the beginning, unpacked, without a byte order mark."""
    if not is_packed(data):
        return data[:4096].removeprefix(_MARK)
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "gzip") as stream:
            return bytes(stream.read(4096)).removeprefix(_MARK)
    except OSError:
        raise damaged(source) from None


# CSV


def _read_csv(source: Source, data: bytes, head: bytes) -> PriceTable:
    line = head.splitlines()[0].decode(errors="replace")
    names = [name.strip().strip('"') for name in line.split(",")]
    wanted = _columns(f"{source}: the header (row 1)", names)
    try:
        table = _parse_csv(data, wanted, use_threads=True)
    except (pa.ArrowInvalid, OSError):
        try:
            # Only the serial reader counts rows, so it is asked where the fault is.
            table = _parse_csv(data, wanted, use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{source}: {_csv_fault(source, data, str(error))}") from None
    return PriceTable(table, False, lambda index: f"row {_line_number(source, data, index + 1)}")


def _parse_csv(data: bytes, wanted: list[str], *, use_threads: bool) -> pa.Table:
    with pa.input_stream(pa.py_buffer(data), compression="gzip" if is_packed(data) else None) as stream:
        return pa_csv.read_csv(
            stream,
            read_options=pa_csv.ReadOptions(use_threads=use_threads),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted, column_types={**_TYPES, CURRENCY: _TEXT}, null_values=[""]
            ),
        )


def _line_number(source: Source, data: bytes, record: int) -> int:
    """Return the line, counted from 1 as an editor does, of a record, counted from 0 with the header; blank lines are none."""
    seen = -1
    lines = unpacked(source, data).splitlines()
    for number, line in enumerate(lines, start=1):
        seen += bool(line)
        if seen == record:
            return number
    return len(lines)


def _csv_fault(source: Source, data: bytes, message: str) -> str:
    """Return what the CSV reader or the decompressor says, in one line of ours."""
    message = " ".join(message.split())
    if re.search(r"truncated|ended before|unexpected end|zlib|gzip", message, re.IGNORECASE):
        return "the gzip stream is damaged or cut short; fetch the file again"
    row = re.search(r"Row #(\d+)", message)
    place = f"row {_line_number(source, data, int(row[1]) - 1)}: " if row else ""
    if expected := re.search(r"Expected (\d+) columns, got (\d+)", message):
        return f"{place}has {expected[2]} columns where the header has {expected[1]}; mend the row"
    value = re.search(r"(?:invalid value|zone offset in) '(.*?)'", message)
    shown = value[1] if value else ""
    if shown in PRICE_COLUMNS:
        return f"{place}is the header once more; remove it"
    if "timestamp" in message:
        return f"{place}{_time_fault(shown)}"
    if "double" in message:
        return f"{place}{_price_fault(shown)}"
    if "utf8" in message.lower():
        return f"{place}is not UTF-8 text; give a CSV file, plain or gzipped"
    return f"{place}{message[:200]}; mend the row"


# Parquet


def _read_parquet(source: Source, data: bytes) -> PriceTable:
    def place(index: int) -> str:
        return f"row {index + 1}"

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        wanted = _columns(f"{source}: the Parquet file", file.schema_arrow.names)
        raw = file.read(columns=wanted)
        raw.validate(full=True)  # the reader takes texts as they are
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{source}: the Parquet file is damaged or cut short ({reason}); fetch it again") from None
    kind = raw.schema.field("timestamp").type
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise InputError(
            f"{source}: row 1: the times of column timestamp have no zone; write them as timestamps in UTC"
        )
    return PriceTable(_typed(source, raw, place), False, place)


# JSON


def _read_json(source: Source, data: bytes) -> PriceTable:
    if len(data) > _MOST_JSON_BYTES:
        raise InputError(f"{source}: has more than 2 GB of JSON; give it in several files, or as CSV or Parquet")
    entry = pa.struct([(name, pa.string()) for name in _AWS_NAMES.values()])
    try:
        documents = pa_json.read_json(
            pa.BufferReader(data),
            read_options=pa_json.ReadOptions(block_size=len(data) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema([(AWS_ENTRIES, pa.list_(entry))]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        documents.validate(full=True)  # the reader takes texts as they are
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{source}: {_json_fault(data, str(error))}") from None
    pages = documents[AWS_ENTRIES]
    if pages.null_count:
        raise InputError(f"{source}: {_json_fault(data, f'a page has no {AWS_ENTRIES}')}")
    entries = pa.chunked_array([chunk.flatten() for chunk in pages.chunks], entry)
    # A whole number of chunks, so that the columns of an empty list have one too.
    raw = pa.table({name: pc.struct_field(entries, aws) for name, aws in _AWS_NAMES.items()})

    def place(index: int) -> str:
        return f"entry {index + 1}"

    for name, aws in _AWS_NAMES.items():
        if raw[name].null_count:
            index = pc.index(raw[name].is_null(), True).as_py()
            raise InputError(f"{source}: {place(index)}: has no {aws}; mend the entry")
    return PriceTable(_typed(source, raw, place), True, place)


def _json_fault(data: bytes, otherwise: str) -> str:
    """Return what is wrong with the JSON, with its place; Python's reader says where, Arrow's is quick."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        return f"row {row}: is not UTF-8 text; give what the aws command prints"
    wanted = f"want {{{json.dumps(AWS_ENTRIES)}: [...]}} as aws ec2 describe-spot-price-history prints it"
    decoder, at, count = json.JSONDecoder(), 0, 0
    while at < len(text):
        try:
            page, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            return f"row {error.lineno}: is not JSON ({error.msg.lower()}); fetch the file again"
        while at < len(text) and text[at].isspace():
            at += 1
        entries = page.get(AWS_ENTRIES) if isinstance(page, dict) else None
        if not isinstance(entries, list):
            return f"is JSON and no price history; {wanted}"
        for number, entry in enumerate(entries, start=count + 1):
            if not isinstance(entry, dict):
                return f"entry {number}: is no object; {wanted}"
            for name in _AWS_NAMES.values():
                if name in entry and not isinstance(entry[name], str):
                    return f"entry {number}: {name} is {json.dumps(entry[name])[:40]}; want a text in quotes"
        count += len(entries)
    return f"{' '.join(otherwise.split())[:200]}; {wanted}"


# Common to all


def _columns(where: str, names: list[str]) -> list[str]:
    """Return the columns to read, after a look at what there is."""
    columns = f"the columns are {','.join(PRICE_COLUMNS)}"
    if missing := [name for name in PRICE_COLUMNS if name not in names]:
        raise InputError(f"{where} lacks {', '.join(missing)}; {columns}")
    wanted = [*PRICE_COLUMNS, *([CURRENCY] if CURRENCY in names else [])]
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise InputError(f"{where} has {', '.join(twice)} twice; {columns}")
    return wanted


def _typed(source: Source, raw: pa.Table, place: Callable[[int], str]) -> pa.Table:
    """Return the columns of `raw` in their types."""
    faults = {"timestamp": _time_fault, "price": _price_fault}
    columns: dict[str, Any] = {}
    for name in raw.column_names:
        fault = faults.get(name, lambda shown, name=name: f"{shown!r} is no {name}; write it as text")
        columns[name] = _cast(source, raw[name], _TYPES.get(name, _TEXT), place, fault)
    return pa.table(columns)


def _cast(source: Source, column: Any, kind: Any, place: Callable[[int], str], fault: Callable[[str], str]) -> Any:
    """Return `column` as `kind`; the first value that cannot be is found by halving."""

    def cast(part: Any) -> Any:
        if kind == _TEXT:
            return part if part.type == _TEXT else part.cast(pa.string()).dictionary_encode()
        if kind == _TIME and not (pa.types.is_timestamp(part.type) or _is_text(part.type)):
            raise pa.ArrowInvalid(f"{part.type} is no time")  # a number has no unit
        return part.cast(kind, safe=not pa.types.is_timestamp(part.type))  # parts of a microsecond are let go

    try:
        return cast(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        low, high = 0, len(column)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                cast(column.slice(low, middle - low))
                low = middle
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                high = middle
        raise InputError(f"{source}: {place(low)}: {fault(str(column[low].as_py()))}") from None


def _is_text(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _time_fault(shown: str) -> str:
    if re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?", shown) and _is_moment(shown):
        return f"the time {shown!r} has no zone; write it as {_TIME_FORM}"
    return f"{shown!r} is not a time; write it as {_TIME_FORM}"


def _is_moment(shown: str) -> bool:
    try:
        pa.scalar(shown).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return True


def _price_fault(shown: str) -> str:
    return f"{shown!r} is not a price; write dollars per hour, as in 0.0324"
