"""Lines and cells of a text table that is held as bytes: where a line begins, what is in it, which line a row is on."""

import csv
import re

#: What some editors put before the first character of a text file.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def line_from(data: bytes, begin: int) -> tuple[int, int] | None:
    """Return where the first line at or after `begin` that is not blank begins and ends, its break included."""
    filled = re.compile(rb"\S").search(data, begin)
    if filled is None:
        return None
    at = filled.start()
    stop = re.compile(rb"\r\n|\r|\n").search(data, at)
    start = max(begin, data.rfind(b"\n", begin, at) + 1, data.rfind(b"\r", begin, at) + 1)
    return start, stop.end() if stop else len(data)


def cells(line: bytes, delimiter: str) -> list[str]:
    """Return the cells of one line without blanks around them; `csv.Error` where it is none."""
    text = line.decode(errors="replace").strip("\r\n").replace("\0", "�")
    return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]


def is_number(text: str) -> bool:
    """Return whether Python reads `text` as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def breaks(data: bytes) -> int:
    """Return how many line breaks there are in `data`."""
    return len((data + b".").splitlines()) - 1


def line_number(data: bytes, start: int, row: int) -> int:
    """Return the line, counted from 1 as an editor does, of a row, counted from 0 from byte `start`; empty lines are no rows."""
    lines = data[start:].splitlines()
    before = breaks(data[:start])
    for number, line in enumerate(lines):
        row -= bool(line)
        if row < 0:
            return before + number + 1
    return before + len(lines) + 1


def shown(text: str) -> str:
    """Return a cell as an error shows it."""
    return repr(text[:40]) if text.strip() else "empty"
