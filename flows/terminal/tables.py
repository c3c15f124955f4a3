"""Tables that never cut an id or a figure: columns that do not fit are left out, or rows become blocks of lines."""

import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Number of blanks between columns.
_GAP = 2
#: Width of a console that is not a terminal: larger than any line, so that none is broken.
_NO_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    rank : 0 for a column that is always shown; of the others, the one with the highest rank is left out first.
    right : whether cells are right-aligned, as figures are.
    least : minimum width in cells to which text may be wrapped; None if it is never wrapped.
    cut : whether text is cut instead of wrapped; never for an id, a figure or a market.
    """

    title: str
    rank: int = 0
    right: bool = False
    least: int | None = None
    cut: bool = False


def terminal_width() -> int | None:
    """Return the width of standard output in cells; None, without a limit, if it is not a terminal."""
    return Console().width if sys.stdout.isatty() else None


def output_console() -> Console:
    """Return a console on standard output, as wide as the terminal; unlimited for a file or a pipe."""
    width = terminal_width()
    return Console(highlight=False, width=_NO_LIMIT if width is None else width)


def show_text(text: str) -> None:
    """Show a paragraph, broken between words to the width of the terminal."""
    width = terminal_width()
    show_lines(*([text] if width is None else textwrap.wrap(text, width)))


def show_lines(*lines: str, style: str = "") -> None:
    """Print lines of text unchanged: only the terminal wraps them, so that they can be copied."""
    console = output_console()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True, style=style or None)


def show_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    caption: str = "",
    bold: Collection[int] = (),
) -> None:
    """Print a table on standard output, no wider than the terminal.

    Parameters
    ----------
    rows : the cells of each row, one per column; an empty row is a blank line.
    title, caption : lines above and below.
    bold : indices of the rows in bold.
    """
    console, width, rows = output_console(), terminal_width(), list(rows)
    shown = fitting(columns, rows, width)
    if title:
        console.print(Text(title, style="italic"))
    if shown is None:
        _print_blocks(console, columns, rows)
    else:
        console.print(_table(columns, rows, _widths(columns, rows, shown, width), bold))
    if caption:
        console.print(Text(caption, style="dim"))
    if shown is not None and len(shown) < len(columns):
        names = ", ".join(column.title for index, column in enumerate(columns) if index not in shown)
        console.print(Text(f"left out, as {width} columns have no room: {names}; --json has them", style="dim"))


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[int] | None:
    """Return the indices of the columns that fit into `width`, in order; None if those of rank 0 alone do not."""
    shown = list(range(len(columns)))
    if width is None:
        return shown
    needed = [_needed(column, [row[index] for row in rows if row]) for index, column in enumerate(columns)]
    while sum(needed[index] for index in shown) + _GAP * (len(shown) - 1) > width:
        least_worth = max(shown, key=lambda index: (columns[index].rank, index))
        if columns[least_worth].rank == 0:
            return None
        shown.remove(least_worth)
    return shown


def _natural(column: Column, cells: Sequence[str]) -> int:
    return max(map(cell_len, (column.title, *cells)))


def _needed(column: Column, cells: Sequence[str]) -> int:
    natural = _natural(column, cells)
    return natural if column.least is None else min(natural, max(column.least, cell_len(column.title)))


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], shown: Sequence[int], width: int | None
) -> dict[int, int]:
    """Return the width of each shown column; text columns share the free width, lowest rank first."""
    cells = {index: [row[index] for row in rows if row] for index in shown}
    natural = {index: _natural(columns[index], cells[index]) for index in shown}
    if width is None:
        return natural
    widths = {index: _needed(columns[index], cells[index]) for index in shown}
    free = width - sum(widths.values()) - _GAP * (len(shown) - 1)
    for index in sorted(shown, key=lambda index: columns[index].rank):
        more = min(natural[index] - widths[index], free)
        widths[index] += more
        free -= more
    return widths


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Mapping[int, int], bold: Collection[int]
) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for index, width in widths.items():
        column = columns[index]
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=column.least is None or column.cut,
            overflow="ellipsis" if column.cut else "fold",
            width=width,
        )
    for number, row in enumerate(rows):
        cells = [Text(row[index]) for index in widths] if row else []
        table.add_row(*cells, style="bold" if number in bold else None)
    return table


def _print_blocks(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as a block: a line for each cell that is not empty, after the title of its column."""
    title_width = max(cell_len(column.title) for column in columns)
    for number, row in enumerate(row for row in rows if row):
        if number:
            console.print()
        for column, cell in zip(columns, row, strict=True):
            if cell:
                line = f"{column.title}{' ' * (title_width - cell_len(column.title) + _GAP)}{cell}"
                console.print(Text(line, overflow="fold"))
