"""Ratings in a text table, one a line: user, item, rating, and columns that are passed over. Read by Arrow."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from infra.errors import InputError
from infra.text_lines import BYTE_ORDER_MARK, breaks, cells, is_number, line_from, line_number, shown

_COLUMNS = ("user", "item", "rating")
_RATING = 2
#: One character for `::`, which Arrow wants; no text has it.
_UNIT = "\x1f"
_TEXT = pa.dictionary(pa.int32(), pa.string())
#: Names of users and of items, each all whole numbers or all texts.
_Known = tuple[NDArray[Any], NDArray[Any]]
_BLOCK, _MOST_BLOCK = 1 << 24, 2**31 - 2
#: Beyond so many times the rows, whole numbers are too far apart for a table of all between the least and the largest.
_SPARSE_IDS = 8


@dataclass(frozen=True, slots=True)
class Ratings:
    """Who gave what how many points.

    Attributes
    ----------
    users, items : int32 of shape (ratings,)
        Indices into the names.
    values : float32 of shape (ratings,)
    user_names, item_names : int64 or texts, sorted, each there once
    place : callable
        Names the place of a rating, counted from 0.
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    values: NDArray[np.float32]
    user_names: NDArray[Any]
    item_names: NDArray[Any]
    place: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Users and items, as in `Ratings`; `values` is None where it is not said who gave how many points."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    values: NDArray[np.float32] | None
    user_names: NDArray[Any]
    item_names: NDArray[Any]
    place: Callable[[int], str]


@dataclass(frozen=True)
class _Layout:
    """Where the ratings begin (byte), what stands between cells, how many there are, and which names are whole numbers."""

    start: int
    delimiter: str
    width: int
    whole: tuple[bool, bool]


def read_ratings(source: str, data: bytes) -> Ratings:
    """Return the ratings of a file with the content `data`; `source` is its name in errors.

    Between the cells there is `::`, a tab or a comma, whichever the first line has. A first line without any number is a
    header. Users and items are named by whole numbers or by any texts.

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    found = _read(source, data.removeprefix(BYTE_ORDER_MARK), None)
    assert found.values is not None  # a third column was asked for
    return Ratings(found.users, found.items, found.values, found.user_names, found.item_names, found.place)


def read_pairs(source: str, data: bytes, users: NDArray[Any], items: NDArray[Any]) -> Pairs:
    """Return the pairs of a file as `read_ratings` reads it, in which the column of the ratings may be missing.

    Parameters
    ----------
    users, items : the names that are known, all whole numbers or all texts. Where they are texts, those of the file are
        read as texts too. Where there are no ratings either, a first line is a header if it begins with `user`, and no
        name in it is known.
    """
    return _read(source, data.removeprefix(BYTE_ORDER_MARK), (users, items))


def _read(source: str, data: bytes, known: _Known | None) -> Pairs:
    layout = _layout(source, data, known)
    if layout.delimiter == _UNIT:
        data = data[: layout.start] + data[layout.start :].replace(b"::", _UNIT.encode())
    table = _table(source, data, layout)

    def place(row: int) -> str:
        return f"line {line_number(data, layout.start, row)}"

    values = table.column(_RATING).to_numpy() if layout.width > _RATING else None
    if values is not None and not (fine := np.isfinite(values)).all():
        row = int(fine.argmin())
        raise InputError(f"{source}: {place(row)}: the rating is {values[row]}; write a finite number")
    (users, user_names), (items, item_names) = (_numbered(table.column(index)) for index in (0, 1))
    for what, numbers, names in (("user", users, user_names), ("item", items, item_names)):
        if names.dtype.kind == "U" and not names[0]:
            row = int((numbers == 0).argmax())
            raise InputError(f"{source}: {place(row)}: the {what} is empty; name each")
    return Pairs(users, items, values, user_names, item_names, place)


def _layout(source: str, data: bytes, known: _Known | None) -> _Layout:
    first = line_from(data, 0)
    if first is None:
        raise InputError(f"{source}: is empty; give a file with one rating a line: user, item, rating")
    line = data[slice(*first)]
    delimiter = next((mark for mark in ("::", "\t", ",") if mark.encode() in line), ",")
    try:
        top = _split(line, delimiter)
        start = first[0]
        place = f"line {breaks(data[:start]) + 1}"
        if len(top) < (len(_COLUMNS) if known is None else _RATING):
            wanted = "all three" if known is None else "two at least"
            raise InputError(
                f"{source}: {place}: has {len(top)} of the columns user, item, rating; want {wanted}, with commas, tabs "
                "or '::' between them"
            )
        if _is_header(top, known):
            start = first[1]
            second = line_from(data, start)
            if second is None:
                least = "ten" if known is None else "one"
                raise InputError(f"{source}: has a header and no ratings; give at least {least}")
            below = _split(data[slice(*second)], delimiter)
            top = below + top[len(below) :]
    except csv.Error as error:
        raise InputError(f"{source}: the first rows: {error}; give a text file of ratings") from None
    users, items = (known is None or not _are_texts(known[index]) for index in (0, 1))
    whole = (users and is_whole(top[0]), items and is_whole(top[1]))
    return _Layout(start, _UNIT if delimiter == "::" else delimiter, len(top), whole)


def _split(line: bytes, delimiter: str) -> list[str]:
    return cells(line.replace(b"::", _UNIT.encode()), _UNIT) if delimiter == "::" else cells(line, delimiter)


def _is_header(top: list[str], known: _Known | None) -> bool:
    if any(map(is_number, top)):
        return False
    if known is None or len(top) > _RATING or not all(map(_are_texts, known)):
        return True  # a rating, or a name, would be a number
    return top[0].lower().startswith("user") and not any(
        (names == name).any() for names, name in zip(known, top, strict=True)
    )


def _are_texts(names: NDArray[Any]) -> bool:
    return names.dtype.kind == "U"


def is_whole(text: str) -> bool:
    """Return whether a name is taken for a whole number, where all others of its column are."""
    return re.fullmatch(r"-?\d{1,18}", text) is not None


def _table(source: str, data: bytes, layout: _Layout) -> pa.Table:
    try:
        return _parse(data, layout, serial=False)
    except pa.ArrowInvalid:
        try:
            return _parse(data, layout, serial=True)  # it alone counts rows; and it takes the longest line
        except pa.ArrowInvalid as error:
            return _mended(source, data, layout, " ".join(str(error).split()))


def _mended(source: str, data: bytes, layout: _Layout, message: str) -> pa.Table:
    """Return the table after all where only a name was taken for a number; raise what is wrong with the file otherwise."""
    value = re.search(r"CSV column #(\d+).*?invalid value '(.*)'", message)
    column = int(value[1]) if value else 0
    if value and column < 2 and layout.whole[column]:
        whole = (layout.whole[0] and column != 0, layout.whole[1] and column != 1)
        return _table(source, data, _Layout(layout.start, layout.delimiter, layout.width, whole))
    row = re.search(r"Row #(\d+)", message)
    place = f"line {line_number(data, layout.start, int(row[1]) - 1)}: " if row else ""
    if width := re.search(r"Expected (\d+) columns, got (\d+)", message):
        raise InputError(
            f"{source}: {place}has {width[2]} columns and the first row {width[1]}; mend the row"
        ) from None
    if value:
        raise InputError(f"{source}: {place}the rating is {shown(value[2])}; write a number") from None
    if "UTF8" in message:
        raise InputError(f"{source}: {place}the name of a user or an item is not UTF-8 text; mend it") from None
    raise InputError(f"{source}: {place}{message[:200]}; mend the file") from None


def _parse(data: bytes, layout: _Layout, *, serial: bool) -> pa.Table:
    wanted = list(_COLUMNS[: layout.width])
    names = [*wanted, *(str(index) for index in range(len(wanted), layout.width))]
    kinds = {name: pa.int64() if whole else _TEXT for name, whole in zip(_COLUMNS, layout.whole, strict=False)}
    block = min(_MOST_BLOCK, len(data) + 1) if serial else _BLOCK
    return pa_csv.read_csv(
        pa.BufferReader(pa.py_buffer(data).slice(layout.start)),
        read_options=pa_csv.ReadOptions(use_threads=not serial, column_names=names, block_size=block),
        parse_options=pa_csv.ParseOptions(delimiter=layout.delimiter),
        convert_options=pa_csv.ConvertOptions(
            column_types={**kinds, "rating": pa.float32()},
            include_columns=wanted,
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _numbered(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return each row's index among the distinct names, and those, sorted."""
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
        texts = np.array([text.strip() for text in column.chunk(0).dictionary.to_pylist()])
        names, rank = np.unique(texts, return_inverse=True)
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
        return rank.astype(np.int32)[codes], names
    ids = column.to_numpy()
    low, high = int(ids.min()), int(ids.max())
    if high - low > _SPARSE_IDS * len(ids):
        names, places = np.unique(ids, return_inverse=True)
        return places.astype(np.int32), names
    there = np.zeros(high - low + 1, bool)
    there[ids - low] = True
    number = np.cumsum(there, dtype=np.int32) - 1
    return number[ids - low], np.flatnonzero(there) + low
