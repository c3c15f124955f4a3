"""The forms of price files, each read into the same columns by Arrow; the content decides the form, not the name.

CSV (plain or gzipped), Parquet, and what ``aws ec2 describe-spot-price-history`` prints, as text or as JSON in
several shapes. `infra.market_data.price_files` checks what a column may hold; values are only converted.
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

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, as_utf8, damaged, has_mark, is_packed, unpacked

PRICE_COLUMNS = ("timestamp", "instance_type", "az", "product", "price")
#: An optional column; all other columns are ignored.
CURRENCY = "currency"

_TIME = pa.timestamp("us", tz="UTC")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {
    "timestamp": _TIME,
    "instance_type": _TEXT,
    "az": _TEXT,
    "product": _TEXT,
    "price": pa.float64(),
    CURRENCY: _TEXT,
}
_AWS_NAMES = {
    "timestamp": "Timestamp",
    "instance_type": "InstanceType",
    "az": "AvailabilityZone",
    "product": "ProductDescription",
    "price": "SpotPrice",
}
AWS_ENTRIES = "SpotPriceHistory"

_PARQUET_MAGIC = b"PAR1"
#: A small Parquet file may claim any number of rows; times that differ take more bytes than this.
_FREE_ROWS, _ROWS_PER_BYTE = 1_000_000, 2
#: What each line of the command's text output begins with, and its columns.
_TEXT_OUTPUT = b"SPOTPRICEHISTORY\t"
_TEXT_COLUMNS = ["kind", "az", "instance_type", "product", "price", "timestamp"]
#: A line of the text output that is not a row: there was more than was asked for.
_NEXT_TOKEN = re.compile(rb"^NEXTTOKEN\t.*$", re.MULTILINE)
_TIME_FORM = "2016-04-01T12:30:00Z"
#: Arrow's JSON reader counts bytes in 32 bits, and needs a complete document in one block.
_MOST_JSON_BYTES = 2**31 - 2


@dataclass(frozen=True)
class PriceTable:
    """The rows of a price file.

    Attributes
    ----------
    columns : pyarrow.Table
        `PRICE_COLUMNS`, and ``currency`` if the file has it: time in UTC, text as dictionaries, price as float64.
    newest_first : bool
        Whether the form comes newest first, as the aws command prints it, and may be in any order.
    place : callable
        Returns the location of a row, counted from 0, in the terms of the form.
    """

    columns: pa.Table
    newest_first: bool
    place: Callable[[int], str]


def read_table(source: Source, data: bytes) -> PriceTable:
    """Return the rows of the price file with the content `data`; `source` is its name in errors."""
    if data.startswith(_PARQUET_MAGIC):
        return _read_parquet(source, data)
    head = _head(source, data)
    if has_mark(head):
        data = as_utf8(source, unpacked(source, data))
        head = data[:4096]
    if not head.strip():
        raise InputError(f"{source}: is empty; give a file with the columns {','.join(PRICE_COLUMNS)}")
    if head.startswith(_PARQUET_MAGIC):
        return _read_parquet(source, unpacked(source, data))
    if b"\0" in head:
        raise InputError(f"{source}: is a binary file; give prices as CSV, Parquet, or JSON of the aws command")
    if head.lstrip()[:1] in (b"{", b"["):
        return _read_json(source, unpacked(source, data), is_list=head.lstrip()[:1] == b"[")
    if head.startswith(_TEXT_OUTPUT):
        return _read_text_output(source, data)
    return _read_csv(source, data, head)


def _head(source: Source, data: bytes) -> bytes:
    """Return some of the beginning, unpacked."""
    if not is_packed(data):
        return data[:4096]
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "gzip") as stream:
            return bytes(stream.read(4096))
    except OSError:
        raise damaged(source) from None


# CSV


def _read_csv(source: Source, data: bytes, head: bytes) -> PriceTable:
    line = head.splitlines()[0].decode(errors="replace")
    names = [name.strip().strip('"') for name in line.split(",")]
    wanted = _columns(f"{source}: the header (row 1)", names)
    table = _parsed(source, data, 1, list(wanted.values()), list(wanted), pa_csv.ParseOptions())
    return PriceTable(table, False, lambda index: f"row {_line_number(source, data, index + 1)}")


def _read_text_output(source: Source, data: bytes) -> PriceTable:
    """Read what the aws command prints with ``--output text``: columns between tabs, without a header."""
    data = _NEXT_TOKEN.sub(b"", unpacked(source, data))  # an empty line is not a row, and the others keep their numbers
    options = pa_csv.ParseOptions(delimiter="\t", quote_char=False)
    table = _parsed(source, data, 0, list(PRICE_COLUMNS), list(PRICE_COLUMNS), options, _TEXT_COLUMNS)
    return PriceTable(table, True, lambda index: f"row {_line_number(source, data, index)}")


def _parsed(
    source: Source,
    data: bytes,
    header_rows: int,
    wanted: list[str],
    names: list[str],
    options: pa_csv.ParseOptions,
    columns: list[str] | None = None,
) -> pa.Table:
    """Return the columns `wanted` of lines, under `names`; `columns` are those of a file without a header."""

    def read(use_threads: bool) -> pa.Table:
        with pa.input_stream(pa.py_buffer(data), compression="gzip" if is_packed(data) else None) as stream:
            return pa_csv.read_csv(
                stream,
                read_options=pa_csv.ReadOptions(use_threads=use_threads, column_names=columns),
                parse_options=options,
                convert_options=pa_csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict(zip(wanted, (_TYPES[name] for name in names), strict=True)),
                    null_values=[""],
                ),
            )

    try:
        table = read(use_threads=True)
    except (pa.ArrowException, OSError):
        try:
            # Only the serial reader counts rows, so it is asked where the fault is.
            table = read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{source}: {_csv_fault(source, data, header_rows, str(error))}") from None
    return table.rename_columns(names)


def _line_number(source: Source, data: bytes, record: int) -> int:
    """Return the line, from 1 as in an editor, of a record, counted from 0 with the header, without blank lines."""
    seen = -1
    lines = unpacked(source, data).splitlines()
    for number, line in enumerate(lines, start=1):
        seen += bool(line)
        if seen == record:
            return number
    return len(lines)


def _csv_fault(source: Source, data: bytes, header_rows: int, message: str) -> str:
    """Return what the CSV reader or the decompressor says, in one line of ours."""
    message = " ".join(message.split())
    if re.search(r"truncated|ended before|unexpected end|zlib|gzip", message, re.IGNORECASE):
        return "the gzip stream is damaged or cut short; fetch the file again"
    row = re.search(r"Row #(\d+)", message)
    place = f"row {_line_number(source, data, int(row[1]) - 1)}: " if row else ""
    if expected := re.search(r"Expected (\d+) columns, got (\d+)", message):
        what = "the header has" if header_rows else "there must be"
        return f"{place}has {expected[2]} columns where {what} {expected[1]}; fix the row"
    value = re.search(r"(?:invalid value|zone offset in) '(.*?)'", message)
    shown = value[1] if value else ""
    if shown in (*PRICE_COLUMNS, *_AWS_NAMES.values()):
        return f"{place}is the header once more; remove it"
    if "timestamp" in message:
        return f"{place}{_time_fault(shown)}"
    if "double" in message:
        return f"{place}{_price_fault(shown)}"
    if "utf8" in message.lower():
        return f"{place}is not UTF-8 text; give a CSV file, plain or gzipped"
    return f"{place}{message[:200]}; fix the row"


# Parquet


def _read_parquet(source: Source, data: bytes) -> PriceTable:
    def place(index: int) -> str:
        return f"row {index + 1}"

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        rows, most = file.metadata.num_rows, _FREE_ROWS + _ROWS_PER_BYTE * len(data)
        if rows > most:
            raise InputError(
                f"{source}: has {rows:,} rows in {len(data):,} bytes, most of them repeated; leave those out"
            )
        wanted = _columns(f"{source}: the Parquet file", file.schema_arrow.names)
        raw = file.read(columns=list(wanted.values())).select(list(wanted.values())).rename_columns(list(wanted))
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


def _read_json(source: Source, data: bytes, *, is_list: bool) -> PriceTable:
    """Read documents of the aws command, the bare list of their entries, or an entry a line."""
    if len(data) > _MOST_JSON_BYTES:
        raise InputError(f"{source}: has more than 2 GB of JSON; give it in several files, or as CSV or Parquet")
    document = b'{"%s":%s}' % (AWS_ENTRIES.encode(), data) if is_list else data
    try:
        try:
            documents = _parse_json(document, pa.string())
        except pa.ArrowInvalid as error:
            if "to number" not in str(error):
                raise
            documents = _parse_json(document, pa.float64())
    except pa.ArrowException as error:
        raise InputError(f"{source}: {_json_fault(data, str(error))}") from None
    pages = documents[AWS_ENTRIES]
    if pages.null_count == 0:
        parts = [chunk.flatten() for chunk in pages.chunks]
        entries = pa.chunked_array(parts, pages.type.value_type)
        # A whole number of chunks, so that the columns of an empty list have one too.
        raw = pa.table({name: pc.struct_field(entries, aws) for name, aws in _AWS_NAMES.items()})
    elif pages.null_count == len(pages) and any(documents[aws].null_count < len(pages) for aws in _AWS_NAMES.values()):
        raw = documents.select(list(_AWS_NAMES.values())).rename_columns(list(_AWS_NAMES))
    else:
        raise InputError(f"{source}: {_json_fault(data, f'a page has no {AWS_ENTRIES}')}")

    def place(index: int) -> str:
        return f"entry {index + 1}"

    for name, aws in _AWS_NAMES.items():
        if raw[name].null_count:
            index = pc.index(raw[name].is_null(), True).as_py()
            raise InputError(f"{source}: {place(index)}: has no {aws}; fix the entry")
    return PriceTable(_typed(source, raw, place), True, place)


def _parse_json(data: bytes, price: Any) -> pa.Table:
    fields = [(aws, price if name == "price" else pa.string()) for name, aws in _AWS_NAMES.items()]
    documents = pa_json.read_json(
        pa.BufferReader(data),
        read_options=pa_json.ReadOptions(block_size=len(data) + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema([(AWS_ENTRIES, pa.list_(pa.struct(fields))), *fields]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    documents.validate(full=True)  # the reader takes texts as they are
    return documents


def _json_fault(data: bytes, otherwise: str) -> str:
    """Return the fault of the JSON with its location, found by Python's reader: Arrow's is fast, but gives none."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        return f"row {row}: is not UTF-8 text; give what the aws command prints"
    wanted = f"want {{{json.dumps(AWS_ENTRIES)}: [...]}} as aws ec2 describe-spot-price-history prints it"
    decoder, at, count, quoted = json.JSONDecoder(), 0, 0, None
    while at < len(text):
        try:
            page, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            return f"row {error.lineno}: is not JSON ({error.msg.lower()}); fetch the file again"
        except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
            return f"is JSON and no price history; {wanted}"
        while at < len(text) and text[at].isspace():
            at += 1
        entries = page
        if isinstance(page, dict):
            entries = [page] if set(page).intersection(_AWS_NAMES.values()) else page.get(AWS_ENTRIES)
        if not isinstance(entries, list):
            return f"is JSON and no price history; {wanted}"
        for number, entry in enumerate(entries, start=count + 1):
            if not isinstance(entry, dict):
                return f"entry {number}: is not an object; {wanted}"
            for name in _AWS_NAMES.values():
                value = entry.get(name, "")
                if name == "SpotPrice" and isinstance(value, int | float) and not isinstance(value, bool):
                    if quoted:
                        return f"entry {number}: {name} is a number, among texts; write all of them alike"
                    quoted = False
                elif not isinstance(value, str):
                    return f"entry {number}: {name} is {json.dumps(value)[:40]}; want a text in quotes"
                elif name == "SpotPrice" and name in entry:
                    if quoted is False:
                        return f"entry {number}: {name} is a text, among numbers; write all of them alike"
                    quoted = True
        count += len(entries)
    return f"{' '.join(otherwise.split())[:200]}; {wanted}"


# Common to all


def _columns(where: str, names: list[str]) -> dict[str, str]:
    """Return the columns to read and what the file calls them: by our names, or as the aws command does."""
    columns = f"the columns are {','.join(PRICE_COLUMNS)}"
    wanted = {name: name if name in names else _AWS_NAMES[name] for name in PRICE_COLUMNS}
    if missing := [name for name, called in wanted.items() if called not in names]:
        raise InputError(f"{where} lacks {', '.join(missing)}; {columns}")
    wanted |= {CURRENCY: CURRENCY} if CURRENCY in names else {}
    if twice := [called for called in wanted.values() if names.count(called) > 1]:
        raise InputError(f"{where} has {', '.join(twice)} twice; {columns}")
    return wanted


def _typed(source: Source, raw: pa.Table, place: Callable[[int], str]) -> pa.Table:
    """Return the columns of `raw` in their types."""
    faults = {"timestamp": _time_fault, "price": _price_fault}
    columns: dict[str, Any] = {}
    for name in raw.column_names:
        fault = faults.get(name, lambda shown, name=name: f"{shown!r} is not an {name}; write it as text")
        columns[name] = _cast(source, raw[name], _TYPES.get(name, _TEXT), place, fault)
    return pa.table(columns)


def _cast(source: Source, column: Any, kind: Any, place: Callable[[int], str], fault: Callable[[str], str]) -> Any:
    """Return `column` as `kind`; the first invalid value is found by bisection."""

    def cast(part: Any) -> Any:
        if kind == _TEXT:
            return part if part.type == _TEXT else part.cast(pa.string()).dictionary_encode()
        if kind == _TIME and not (pa.types.is_timestamp(part.type) or _is_text(part.type)):
            raise pa.ArrowInvalid(f"{part.type} is not a time")  # a number has no unit
        if pa.types.is_timestamp(part.type):
            return part.cast(
                options=pc.CastOptions(kind, allow_time_truncate=True)
            )  # parts of a microsecond are let go
        return part.cast(kind)

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
        raise InputError(f"{source}: {place(low)}: {fault(_shown(column[low]))}") from None


def _shown(value: Any) -> str:
    try:
        return str(value.as_py())
    except (OverflowError, ValueError):  # a time beyond the years that Python counts
        return str(value.value)


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
