"""Which columns of a CSV are inputs and which is the label: by the header, by names, or by their places."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.infra.datasets.formats.separators import TableText
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import INDEX_NAMES, breaks, is_number, line_from, shown

#: A column of such a name holds the label.
LABEL_NAMES = ("label", "target", "class", "species")
#: And one of this name, for an application that learns labels: beside `x` it is a coordinate for any other.
_LABEL_ALSO = "y"
#: A column takes some kilobytes, however short it is: a file may have so many, and one for so many bytes more.
_MOST_COLUMNS, _BYTES_PER_COLUMN = 50_000, 300
#: Number of names that an error or a note lists.
_FEW = 6


@dataclass(frozen=True)
class CsvLayout:
    """Where the rows begin (byte), how many columns there are, which are inputs and which is the label.

    `inputs` are in the order in which they are wanted; `label` None: there is none; `text`: the label is one; `names`
    are those of all columns, empty without a header; `index`: the first column has no name and is left out; `notes`:
    how the columns were found, where that is not what their author may expect.
    """

    start: int
    width: int
    inputs: tuple[int, ...]
    label: int | None
    text: bool
    names: tuple[str, ...] = ()
    index: bool = False
    notes: tuple[str, ...] = ()

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs; empty without a header."""
        return tuple(self.names[column] for column in self.inputs) if self.names else ()

    @property
    def label_name(self) -> str | None:
        """Name of the label's column; None without a header or a label."""
        return self.names[self.label] if self.names and self.label is not None else None

    def column(self, at: int) -> str:
        """Return a column, counted from 0, as an error names it."""
        name = self.names[at] if at < len(self.names) else ""
        return f"column {at + 1}{f' ({shown(name)})' if name else ''}"


def find_layout(source: str, text: TableText, n_inputs: int | None, labels: bool, how: Reading) -> CsvLayout:
    """Return the layout of a table; parameters as of `infra.datasets.formats.csv_examples.read_csv`.

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    first = line_from(text.data, text.start)
    if first is None:
        raise InputError(f"{source}: is empty; give a file with one example a line")
    second = line_from(text.data, first[1])
    try:
        top = text.cells(text.data[slice(*first)])
        below = text.cells(text.data[slice(*second)]) if second else []
    except csv.Error as error:
        raise InputError(f"{source}: the first rows: {error}; give a text file of numbers") from None
    place = f"{source}: line {breaks(text.data[: first[0]]) + 1}"
    _check_width(place, text, len(top))
    marks = _marked(place, top, labels, how.label)
    by_name = bool(how.inputs) and set(how.inputs) <= set(top)
    header = bool(marks) or by_name or _is_header(place, top, below)
    if how.label and not marks:
        what = f"no column is called {shown(how.label)}, but {_few(top)}" if header else "has no header"
        raise InputError(f"{place}: {what}; --label {how.label} names the column of the label")
    index = header and len(top) > 1 and top[0].lower() in INDEX_NAMES and top[0] not in how.inputs
    if len(top) - index < 2 and ((labels and n_inputs != 1) or marks):
        raise InputError(f"{place}: has one column; want features and a label, with {text.separators} between them")
    if header and not below:
        raise InputError(f"{source}: has a header and no rows; give at least two examples")
    if header and how.inputs:
        return _by_names(place, first[1], top, below, index, marks, how)
    every = range(int(index), len(top))
    if not header:
        is_text = _is_text(top, len(top) - 1)
        bare = not is_text and (len(top) == n_inputs or not labels)
        notes = (f"no header: columns are taken by their places, {_few(how.inputs)}",) if how.inputs else ()
        return _with_label(first[0], len(top), every, None if bare else len(top) - 1, is_text, notes=notes)
    if len(marks) > 1:
        raise _both(place, [top[mark] for mark in marks])
    label = marks[0] if marks else len(top) - 1
    is_text = len(every) > 1 and _is_text(below, label)
    bare = not marks and not is_text and (len(every) == n_inputs or not labels)
    if nameless := [at for at in every if not top[at] and (bare or at != label)]:
        raise InputError(f"{place}: column {nameless[0] + 1} has no name; name it, or leave it out")
    return _with_label(first[1], len(top), every, None if bare else label, is_text, tuple(top), index)


def _with_label(
    start: int,
    width: int,
    columns: Sequence[int],
    label: int | None,
    text: bool,
    names: tuple[str, ...] = (),
    index: bool = False,
    notes: tuple[str, ...] = (),
) -> CsvLayout:
    inputs = tuple(column for column in columns if column != label)
    return CsvLayout(start, width, inputs, label, text, names, index, notes)


def _check_width(place: str, text: TableText, width: int) -> None:
    if width > (most := _MOST_COLUMNS + len(text.data) // _BYTES_PER_COLUMN):
        raise InputError(
            f"{place}: has {width} columns, and a file of {len(text.data)} bytes may have {most}; give svmlight or npz"
        )


def _marked(place: str, top: list[str], labels: bool, label: str) -> list[int]:
    """Return the columns that a header, if the first row is one, says to be the label."""
    if label:
        marks = [at for at, name in enumerate(top) if name == label]
        if len(marks) > 1:
            raise InputError(f"{place}: {len(marks)} columns are called {shown(label)}; rename one of them")
        return marks
    names = (*LABEL_NAMES, _LABEL_ALSO) if labels else LABEL_NAMES
    return [at for at, name in enumerate(top) if name.lower() in names]


def _is_text(below: list[str], column: int) -> bool:
    return len(below) > column and bool(below[column]) and not is_number(below[column])


def _by_names(
    place: str, start: int, top: list[str], below: list[str], index: bool, marks: list[int], how: Reading
) -> CsvLayout:
    """Return the layout of new data for a model whose inputs have names; their order is the model's."""
    rest = [at for at in range(int(index), len(top)) if top[at] not in how.inputs]
    known = [at for at in rest if top[at] == how.known_label]
    named = [at for at in rest if at in marks]
    if how.label and top[marks[0]] in how.inputs:
        raise InputError(f"{place}: {shown(how.label)} is an input of the model, and cannot be the label too")
    found = named if how.label else known or named
    unknown = [top[at] for at in rest if at not in found]
    if missing := [name for name in how.inputs if name not in top]:
        beside = f", and {_few(unknown)} {'is' if len(unknown) == 1 else 'are'} none of its inputs" if unknown else ""
        raise InputError(
            f"{place}: lacks {_few(missing)}, which the model was trained on{beside}; name the columns as there"
        )
    if len(found) > 1:
        raise _both(place, [top[at] for at in found])
    if unknown:
        raise InputError(
            f"{place}: {_few(unknown)} {'is' if len(unknown) == 1 else 'are'} none of the inputs that the model was "
            "trained on, and not its label; leave it out"
        )
    inputs = tuple(at for at in range(len(top)) if top[at] in how.inputs)
    notes: tuple[str, ...] = ()
    if [top[at] for at in inputs] != list(how.inputs):
        if len(inputs) > len(how.inputs) or len(set(how.inputs)) < len(how.inputs):
            twice = next(top[at] for at in inputs if top.count(top[at]) > 1)
            raise InputError(f"{place}: several columns are called {shown(twice)}; the model was trained on one")
        inputs = tuple(top.index(name) for name in how.inputs)
        notes = ("the columns are in another order than in the training data, and taken by their names",)
    label = found[0] if found else None
    is_text = label is not None and _is_text(below, label)
    return CsvLayout(start, len(top), inputs, label, is_text, tuple(top), index, notes)


def _both(place: str, names: list[str]) -> InputError:
    both = " and ".join(shown(name) for name in names[:2])
    return InputError(f"{place}: {both} may both be the label; say which by --label, or rename one of them")


def _few(names: Sequence[str]) -> str:
    return ", ".join(shown(name) for name in names[:_FEW]) + (", …" if len(names) > _FEW else "")


def _is_header(place: str, top: list[str], below: list[str]) -> bool:
    """Return whether the first row is a header; refuse an ambiguous one."""
    numbers = [is_number(cell) for cell in top]
    if not any(numbers):
        return True
    if all(numbers[:-1]):  # text in the last column only: a label if the row below has one too
        return not numbers[-1] and len(below) == len(top) and is_number(below[-1])
    odd = top[numbers.index(False)]
    if not odd:
        return False  # an empty cell
    raise InputError(
        f"{place}: {shown(odd)} is not a number, among numbers; fix the value, or write a header without numbers"
    )
