"""What stands between the columns of a text table, by its first lines."""

import re
from dataclasses import dataclass

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import cells, is_number, line_from, with_single_blanks

_BLANK = " "
_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", _BLANK: "blanks"}
#: First lines of forms that are text and no table of numbers, and what to do with such a file.
_FOREIGN = (
    (re.compile(rb"(?:\s*%[^\n]*\n|\s)*@relation\b", re.IGNORECASE), "an ARFF file of Weka; save it as CSV"),
    (re.compile(rb"%%MatrixMarket"), "a Matrix Market file; save it as svmlight or npz"),
    (re.compile(rb"\s*(\{\s*\"|\[\s*[\[{])"), "JSON; save it as CSV"),
)
#: Excel's first line, which says the separator.
SAYS = re.compile(rb'\s*"?sep=([,;\t])"?[ \t]*(?:\r\n|\r|\n)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableText:
    """A text table: its bytes, where its first line begins, what separates cells, whether decimals have commas."""

    data: bytes
    start: int
    delimiter: str
    decimal_comma: bool = False

    @property
    def separators(self) -> str:
        """The separators, in a word."""
        return _NAMES[self.delimiter]

    def cells(self, line: bytes) -> list[str]:
        """Return the cells of a line, stripped; a decimal comma is a point in them."""
        found = cells(line, self.delimiter)
        return [re.sub(r"^([+-]?\d*),(\d+)$", r"\1.\2", cell) for cell in found] if self.decimal_comma else found


def check_is_table(source: str, data: bytes) -> None:
    """Refuse text of another form than a table; `InputError` names the form."""
    for begins, what in _FOREIGN:
        if begins.match(data):
            raise InputError(f"{source}: is {what}")


def has_columns_between_blanks(data: bytes) -> bool:
    """Return whether the first line has numbers between blanks, or names above such a line; the last may be a text."""
    first = line_from(data, 0)
    if first is None:
        return False
    second = line_from(data, first[1])
    rows = [data[slice(*line)].decode(errors="replace").split() for line in (first, second) if line is not None]
    top, below = rows[0], rows[-1]
    if len(top) > 1 and all(map(is_number, top[:-1])):
        return True
    return len(below) > 1 and len(top) == len(below) and all(map(is_number, below[:-1]))


def table_text(source: str, data: bytes, preferred: str) -> TableText:
    """Return a text table with its separator, which is `preferred` where the first line has it.

    Else it is a semicolon, a tab or a comma, or blanks where the rows are numbers between blanks. Where it is not a
    comma, commas between digits are decimal ones.

    Raises
    ------
    InputError
        If it is text of another form.
    """
    check_is_table(source, data)
    says = SAYS.match(data)
    if says is not None:
        return _with_decimals(data, says.end(), says[1].decode())
    first = line_from(data, 0)
    line = b"" if first is None else re.sub(rb'"[^"]*"', b"", data[slice(*first)].strip(b"\r\n"))
    # Commas that are all decimal ones separate nothing where something else does.
    without = re.sub(rb"(?<=\d),(?=\d)", b"", line) if re.search(rb"[;\t]", line.strip()) else line
    marks = [mark for mark in (preferred, ";", "\t", ",") if mark.encode() in without.strip()]
    if marks and preferred != _BLANK:
        return _with_decimals(data, 0, marks[0])
    if preferred == _BLANK or has_columns_between_blanks(data):
        return TableText(with_single_blanks(data), 0, _BLANK)
    return TableText(data, 0, preferred)


def _with_decimals(data: bytes, start: int, delimiter: str) -> TableText:
    between = rb"(?:^|[;\t\r\n ])[+-]?\d+,\d+(?=[;\t\r\n ]|$)"
    return TableText(data, start, delimiter, delimiter != "," and re.search(between, data) is not None)
