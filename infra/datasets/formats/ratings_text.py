"""Ratings in text tables, read by Arrow: one per line, with user, item, rating and ignored columns."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from proteus_spot.infra.datasets.formats.separators import SAYS, check_is_table
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import (
    BYTE_ORDER_MARK,
    INDEX_NAMES,
    OPEN_QUOTE,
    breaks,
    cells,
    is_number,
    line_from,
    line_number,
    open_quote,
    shown,
    with_single_blanks,
)

_COLUMNS = ("user", "item", "rating")
_RATING = 2
#: Names of columns without what is not a letter or digit, in lower case. A name that ends in `rating` is one of a
#: rating too.
_USER_NAMES = frozenset(("user", "userid", "username", "uid", "reviewerid", "customerid"))
_ITEM_NAMES = frozenset(
    ("item", "itemid", "movie", "movieid", "film", "filmid", "book", "bookid", "isbn", "product", "productid", "asin",
     "artist", "artistid", "track", "trackid", "song", "songid", "joke", "jokeid", "anime", "animeid")
)  # fmt: skip
_RATING_NAMES = frozenset(("rating", "ratings", "score", "stars", "points", "plays", "playcount", "weight", "overall"))
#: What is beside ratings in many files and no rating.
_TIME_NAMES = frozenset(("timestamp", "time", "date", "datetime", "unixtime", "unixreviewtime", "reviewtime"))
#: One character for those between cells that are two, which Arrow wants; no text has it.
_UNIT = "\x1f"
#: What is between cells, where quotes have no meaning.
_TWO_TABS, _TWO_COLONS, _TAB, _BLANKS = "\t\t", "::", "\t", " "
_TEXT = pa.dictionary(pa.int32(), pa.string())
#: Names of users and of items, each all whole numbers or all texts.
_Known = tuple[NDArray[Any], NDArray[Any]]
_BLOCK, _MOST_BLOCK = 1 << 24, 2**31 - 2
#: Maximum range of whole-number names, as a multiple of the rows, for a lookup table over that range.
_SPARSE_IDS = 8
#: Bytes that are looked at together for zeros.
_AT_ONCE = 1 << 24
#: Bytes of a table of names, of which each takes as many as the longest: so many, or so many times those of the file.
_NAMES_FREELY, _NAMES_RATIO = 2**25, 2


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of items by users.

    Attributes
    ----------
    users, items : int32 of shape (ratings,)
        Indices into the names.
    values : float32 of shape (ratings,)
    user_names, item_names : int64 or texts, sorted, without duplicates
    place : callable
        Names the place of a rating, counted from 0.
    notes : tuple of str
        How the file was read, where that may not be what its author expects; a line each.
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    values: NDArray[np.float32]
    user_names: NDArray[Any]
    item_names: NDArray[Any]
    place: Callable[[int], str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of user and item, as in `Ratings`; `values` is None without ratings."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    values: NDArray[np.float32] | None
    user_names: NDArray[Any]
    item_names: NDArray[Any]
    place: Callable[[int], str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Layout:
    """Where the ratings begin (byte), what stands between cells, how many there are, and which names are whole numbers.

    `columns` are those of user, item and rating, or of user and item alone.
    """

    start: int
    delimiter: str
    width: int
    whole: tuple[bool, bool]
    columns: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def quoted(self) -> bool:
        """Whether a cell may be in quotes."""
        return self.delimiter in (",", ";")


def read_ratings(source: str, data: bytes) -> Ratings:
    """Return the ratings of a file with the content `data`; `source` is its name in errors.

    Between the cells there is `::`, a tab or two, a comma, a semicolon or blanks, whichever the first line has; only
    with
    commas and semicolons may cells be in quotes. A first line without any number is a header, and columns that it names
    user, item and rating are these (docs/data.md has the names); else the first three are. Users and items are named by
    whole numbers or by any texts.

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    found = _read(source, data.removeprefix(BYTE_ORDER_MARK), None)
    assert found.values is not None  # a third column was asked for
    return Ratings(found.users, found.items, found.values, found.user_names, found.item_names, found.place, found.notes)


def read_pairs(source: str, data: bytes, users: NDArray[Any], items: NDArray[Any]) -> Pairs:
    """Return the pairs of a file as of `read_ratings`, in which the column of the ratings may be missing.

    Parameters
    ----------
    users, items : the names that are known, all whole numbers or all texts. Where they are texts, those of the file are
        read as texts too. Where there are no ratings either, a first line is a header if it names a user and an item,
        or
        begins with `user`, and no name in it is known.
    """
    return _read(source, data.removeprefix(BYTE_ORDER_MARK), (users, items))


def _read(source: str, data: bytes, known: _Known | None) -> Pairs:
    check_is_table(source, data)
    if says := SAYS.match(data):
        data = b"\n" + data[says.end() :]
    delimiter = _delimiter(data)
    layout = _layout(source, data, delimiter, known)
    rows = _with_one_character(data[layout.start :], delimiter)
    if any(layout.whole) and _may_begin_with_zero(rows):
        layout = replace(layout, whole=(False, False))  # read as texts, of which it can be seen
    data = data[: layout.start] + rows
    table = _table(source, data, layout)
    if layout.quoted and (line := open_quote(data, layout.start, table.num_rows, layout.delimiter)) is not None:
        raise InputError(f"{source}: line {line}: {OPEN_QUOTE}")

    def place(row: int) -> str:
        return f"line {line_number(data, layout.start, row)}"

    values = table.column("rating").to_numpy() if len(layout.columns) > _RATING else None
    if values is not None and not (fine := np.isfinite(values)).all():
        row = int(fine.argmin())
        raise InputError(f"{source}: {place(row)}: the rating is {values[row]}; write a finite number")
    numbered = []
    for index, what in enumerate(("user", "item")):
        column = table.column(what)
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
            _check_lengths(source, what, column, len(data), place)
        numbers, names = _numbered(column, known is not None and _are_texts(known[index]))
        if names.dtype.kind == "U" and not names[0]:
            row = int((numbers == 0).argmax())
            raise InputError(f"{source}: {place(row)}: the {what} is empty; name each")
        numbered.append((numbers, names))
    (users, user_names), (items, item_names) = numbered
    return Pairs(users, items, values, user_names, item_names, place, layout.notes)


def _check_lengths(source: str, what: str, column: pa.ChunkedArray, size: int, place: Callable[[int], str]) -> None:
    """Refuse a name whose length would make the table of all names, each as long as the longest, huge."""
    texts = column.chunk(0).dictionary
    lengths = np.diff(np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset))
    longest = int(lengths.argmax())
    if 4 * int(lengths[longest]) * len(texts) > _NAMES_FREELY + _NAMES_RATIO * size:
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
        raise InputError(
            f"{source}: {place(int((codes == longest).argmax()))}: the {what} has {lengths[longest]} bytes, "
            f"too many for "
            f"one of {len(texts)} names; fix the line"
        )


def _delimiter(data: bytes) -> str:
    """Return what is between the cells, by the first line; two tabs only where no line has one or three together."""
    first = line_from(data, 0)
    line = b"" if first is None else data[slice(*first)].strip(b"\r\n")
    if b"::" in line:
        return _TWO_COLONS
    if b"\t" in line.strip():
        only_two = b"\t\t" in line and re.search(rb"(?<!\t)\t(?!\t)|\t\t\t", data) is None
        return _TWO_TABS if only_two else _TAB
    unquoted = re.sub(rb'"[^"]*"', b"", line)
    if mark := re.search(rb"[,;]", unquoted):
        return mark[0].decode()
    return _BLANKS if len(line.split()) > 1 else ","


def _with_one_character(rows: bytes, delimiter: str) -> bytes:
    """Return rows with one character between the cells."""
    if delimiter in (_TWO_COLONS, _TWO_TABS):
        return rows.replace(delimiter.encode(), _UNIT.encode())
    return with_single_blanks(rows) if delimiter == _BLANKS else rows


def _layout(source: str, data: bytes, delimiter: str, known: _Known | None) -> _Layout:
    first = line_from(data, 0)
    if first is None:
        raise InputError(f"{source}: is empty; give a file with one rating a line: user, item, rating")
    start = first[0]
    place = f"line {breaks(data[:start]) + 1}"
    least = len(_COLUMNS) if known is None else _RATING
    try:
        top = _split(data[slice(*first)], delimiter)
        if len(top) < least:
            wanted = "all three" if known is None else "two at least"
            raise InputError(
                f"{source}: {place}: has {len(top)} of the columns user, item, rating; want {wanted}, with "
                f"commas, tabs, "
                "semicolons, blanks or '::' between them"
            )
        columns = tuple(range(min(len(top), len(_COLUMNS))))
        notes: tuple[str, ...] = ()
        if _is_header(top, known):
            columns = _columns_of(source, place, top, least)
            if columns != tuple(range(len(columns))):
                named = ", ".join(shown(top[column]) for column in columns)
                notes = (f"the columns {', '.join(_COLUMNS[: len(columns)])} are {named}",)
            start = first[1]
            second = line_from(data, start)
            if second is None:
                few = "ten" if known is None else "one"
                raise InputError(f"{source}: has a header and no ratings; give at least {few}")
            below = _split(data[slice(*second)], delimiter)
            top = below + top[len(below) :]
    except csv.Error as error:
        raise InputError(f"{source}: the first rows: {error}; give a text file of ratings") from None
    users, items = (known is None or not _are_texts(known[index]) for index in (0, 1))
    whole = (users and is_whole(top[columns[0]]), items and is_whole(top[columns[1]]))
    mark = _UNIT if delimiter in (_TWO_COLONS, _TWO_TABS) else delimiter
    return _Layout(start, mark, len(top), whole, columns, notes)


def _split(line: bytes, delimiter: str) -> list[str]:
    if delimiter in (",", ";"):
        return cells(line, delimiter)
    text = line.decode(errors="replace").strip("\r\n").replace("\0", "�")
    return text.split() if delimiter == _BLANKS else [cell.strip() for cell in text.split(delimiter)]


def _role(name: str) -> int | None:
    """Return which of user, item and rating the name of a column says, None where it says none of them."""
    plain = re.sub(r"[\W_]", "", name.partition(":")[0].lower())  # RecBole writes user_id:token
    roles = (plain in _USER_NAMES, plain in _ITEM_NAMES, plain in _RATING_NAMES or plain.endswith("rating"))
    return roles.index(True) if any(roles) else None


def _is_time(name: str) -> bool:
    return re.sub(r"[\W_]", "", name.partition(":")[0].lower()) in _TIME_NAMES


def _columns_of(source: str, place: str, top: list[str], least: int) -> tuple[int, ...]:
    """Return the columns of user, item and rating as a header names them.

    One that it does not name is at its usual place, after an index of rows, which has no name.
    """
    roles = [_role(name) for name in top]
    n_index = int(top[0].strip('"').lower() in INDEX_NAMES)
    columns = []
    for role, what in enumerate(_COLUMNS):
        named = [column for column, found in enumerate(roles) if found == role]
        exact = [column for column in named if top[column].strip('"').lower() == what]
        if len(named) > 1 and len(exact) != 1:
            both = " and ".join(shown(top[column]) for column in named[:2])
            raise InputError(f"{source}: {place}: {both} may both be the {what}; rename one of them")
        if named:
            columns.append(exact[0] if exact else named[0])
            continue
        usual = role + n_index
        if usual < len(top) and roles[usual] is None and not (role == _RATING and _is_time(top[usual])):
            columns.append(usual)
        elif role < least:
            names = ", ".join(shown(name) for name in top[:6] if name)
            raise InputError(f"{source}: {place}: no column of {names} is the {what}; call one {what}")
    return tuple(columns)


def _is_header(top: list[str], known: _Known | None) -> bool:
    if any(map(is_number, top)):
        return False
    if known is None or len(top) > _RATING or not all(map(_are_texts, known)):
        return True  # a rating, or a name, would be a number
    names_both = set(map(_role, top)) == {0, 1} or top[0].lower().startswith("user")
    return names_both and not any((names == name).any() for names, name in zip(known, top, strict=True))


def _are_texts(names: NDArray[Any]) -> bool:
    return names.dtype.kind == "U"


def is_whole(text: str) -> bool:
    """Return whether a name counts as a whole number, if all others of its column do: 7, not 007, +7 or 7.0."""
    return re.fullmatch(r"0|-?[1-9]\d{0,17}", text) is not None


def _may_begin_with_zero(rows: bytes) -> bool:
    """Return whether a number in the rows may begin with a zero that is not all of it."""
    for low in range(0, len(rows), _AT_ONCE):
        letters = np.frombuffer(rows, np.uint8, min(_AT_ONCE + 1, len(rows) - low), low)
        zeros = np.flatnonzero(letters[:-1] == ord("0"))
        zeros = zeros[_is_digit(letters[zeros + 1])]
        before = np.frombuffer(rows, np.uint8)[zeros + low - 1]
        if not (_is_digit(before) | (before == ord("."))).all() or (low == 0 and 0 in zeros):
            return True
    return False


def _is_digit(letters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return (letters - np.uint8(ord("0"))) < 10


def _table(source: str, data: bytes, layout: _Layout) -> pa.Table:
    try:
        return _parse(data, layout, serial=False)
    except pa.ArrowInvalid:
        try:
            return _parse(data, layout, serial=True)  # only this one counts rows and accepts any line
        except pa.ArrowInvalid as error:
            return _fixed(source, data, layout, " ".join(str(error).split()))


def _fixed(source: str, data: bytes, layout: _Layout, message: str) -> pa.Table:
    """Return the table with names read as text if that was the fault; raise `InputError` for any other fault."""
    value = re.search(r"CSV column #(\d+).*?invalid value '(.*)'", message)
    column = int(value[1]) if value else 0
    if value and column in (numbered := [at for at, whole in zip(layout.columns, layout.whole, strict=False) if whole]):
        users, items = (at in numbered and at != column for at in layout.columns[:2])
        return _table(source, data, replace(layout, whole=(users, items)))
    row = re.search(r"Row #(\d+)", message)
    line = line_number(data, layout.start, int(row[1]) - 1) if row else None
    opened = open_quote(data, layout.start, None, layout.delimiter) if layout.quoted else None
    if opened is not None and (line is None or opened <= line):
        raise InputError(f"{source}: line {opened}: {OPEN_QUOTE}") from None  # what comes after it is misread
    place = f"line {line}: " if line else ""
    if width := re.search(r"Expected (\d+) columns, got (\d+)", message):
        raise InputError(f"{source}: {place}has {width[2]} columns and the first row {width[1]}; fix the row") from None
    if value:
        raise InputError(f"{source}: {place}the rating is {shown(value[2])}; write a number") from None
    if "UTF8" in message:
        raise InputError(f"{source}: {place}the name of a user or an item is not UTF-8 text; fix it") from None
    raise InputError(f"{source}: {place}{message[:200]}; fix the file") from None


def _parse(data: bytes, layout: _Layout, *, serial: bool) -> pa.Table:
    wanted = list(_COLUMNS[: len(layout.columns)])
    names = [str(index) for index in range(layout.width)]
    for name, column in zip(wanted, layout.columns, strict=True):
        names[column] = name
    kinds = {name: pa.int64() if whole else _TEXT for name, whole in zip(_COLUMNS, layout.whole, strict=False)}
    block = min(_MOST_BLOCK, len(data) + 1) if serial else _BLOCK
    return pa_csv.read_csv(
        pa.BufferReader(pa.py_buffer(data).slice(layout.start)),
        read_options=pa_csv.ReadOptions(use_threads=not serial, column_names=names, block_size=block),
        parse_options=pa_csv.ParseOptions(delimiter=layout.delimiter, quote_char='"' if layout.quoted else False),
        convert_options=pa_csv.ConvertOptions(
            column_types={**kinds, "rating": pa.float32()},
            include_columns=wanted,
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _numbered(column: pa.ChunkedArray, as_texts: bool) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return each row's index among the distinct names, and the sorted names: numbers if all are plain ones."""
    if pa.types.is_dictionary(column.type):
        texts = np.array([text.strip() for text in column.chunk(0).dictionary.to_pylist()])
        if not as_texts and all(map(is_whole, texts.tolist())):
            texts = texts.astype(np.int64)
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
