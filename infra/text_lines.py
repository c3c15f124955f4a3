"""Lines and cells of a text table held as bytes: find lines, split cells, number rows."""

import csv
import re

import numpy as np

#: What some editors put before the first character of a text file.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: The header of the first column, in lower case, where that is an index of rows: pandas and R write none, and pandas
#: calls
#: such a column so when it has read one.
INDEX_NAMES = ("", "unnamed: 0")
#: What is wrong with a line that `open_quote` finds.
OPEN_QUOTE = "a quote is opened and not closed in the line; double it, or remove it"


def line_from(data: bytes, begin: int) -> tuple[int, int] | None:
    """Return start and end (with its break) of the first line that is not blank at or after byte `begin`."""
    filled = re.compile(rb"\S").search(data, begin)
    if filled is None:
        return None
    at = filled.start()
    stop = re.compile(rb"\r\n|\r|\n").search(data, at)
    start = max(begin, data.rfind(b"\n", begin, at) + 1, data.rfind(b"\r", begin, at) + 1)
    return start, stop.end() if stop else len(data)


def cells(line: bytes, delimiter: str) -> list[str]:
    """Return the cells of one line, stripped of blanks; `csv.Error` if it is not a CSV line."""
    text = line.decode(errors="replace").strip("\r\n").replace("\0", "�")
    return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]


def is_number(text: str) -> bool:
    """Return whether `float` accepts `text`."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def breaks(data: bytes) -> int:
    """Return the number of line breaks in `data`."""
    return len((data + b".").splitlines()) - 1


def line_number(data: bytes, start: int, row: int) -> int:
    """Return the number of the line, from 1 as in an editor, of row `row`, counted from 0 at byte `start`.

    Empty lines are no rows.
    """
    lines = data[start:].splitlines()
    before = breaks(data[:start])
    for number, line in enumerate(lines):
        row -= bool(line)
        if row < 0:
            return before + number + 1
    return before + len(lines) + 1


def with_single_blanks(rows: bytes) -> bytes:
    """Return lines with one blank between their words, none at their ends, and no tab."""
    rows = rows.replace(b"\t", b" ")
    if rows.startswith(b" ") or any(blank in rows for blank in (b"  ", b" \n", b"\n ", b" \r", b"\r ")):
        rows = re.sub(rb" +", b" ", rows)
        rows = re.sub(rb"(?<![^\n\r]) | (?=[\n\r]|\Z)", b"", rows)
    return rows


def open_quote(data: bytes, start: int, rows: int | None, delimiter: str) -> int | None:
    """Return the first line, from 1, whose last cell continues in the next line; None if every row is one line.

    Parameters
    ----------
    start : byte where the rows begin.
    rows : number of rows that a reader with quotes found in `data`; it takes a quote and all lines up to the next quote
        for one cell. None: it failed.
    """
    if data.find(b'"', start) < 0:
        return None
    if rows is not None:
        letters = np.frombuffer(data, np.uint8, offset=start)
        filled = (letters != ord("\n")) & (letters != ord("\r"))
        if int(filled[0]) + np.count_nonzero(filled[1:] & ~filled[:-1]) <= rows:
            return None
    for number, line in enumerate(data[start:].splitlines(), start=breaks(data[:start]) + 1):
        if b'"' in line and _is_open(line, delimiter):
            return number
    return None


def _is_open(line: bytes, delimiter: str) -> bool:
    reader = csv.reader([line.decode(errors="replace") + "\n", ""], delimiter=delimiter)
    try:
        next(reader)
    except csv.Error:
        return True  # longer than any cell
    return reader.line_num > 1


def shown(text: str) -> str:
    """Return a cell in the form for error messages."""
    return repr(text[:40]) if text.strip() else "empty"
