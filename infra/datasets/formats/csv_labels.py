"""The labels of a CSV: numbers where all are plain ones, else texts; digits that are names stay the names they are."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.infra.text_lines import is_number, shown

#: What stands for no value in a column of numbers.
NO_VALUE = ("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None")
#: Labels that are whole numbers, and those of them that are names: a leading zero, or more digits than a float64 holds.
_WHOLE, _NAME = r"^[+-]?\d+(\.0*)?$", r"^[+-]?(0\d|\d{16})"


class LabelFault(Exception):
    """A label that cannot be one: its row, counted from 0, and why."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row, self.why = row, why


def labels_of(
    column: pa.ChunkedArray, decimal_comma: bool, how: Reading
) -> tuple[NDArray[np.float64], tuple[()]] | tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return numbers and no texts, or codes and the sorted texts that they count.

    Parameters
    ----------
    column : texts as they are in the file, as a dictionary where the first is not a number.
    how : where rows without a label are left out, these are NaN, or -1 among codes.

    Raises
    ------
    LabelFault
        For no label, or a number among texts.
    """
    drops = how.empty == "drop"
    if pa.types.is_dictionary(column.type):
        return _texts(column, drops, mixed=how.text_labels)
    column = pc.utf8_trim_whitespace(column)
    if how.text_labels or _are_names(column):
        return _texts(pc.dictionary_encode(column), drops, mixed=True)
    numbers = pc.replace_substring(column, ",", ".") if decimal_comma else column
    if drops:
        numbers = pc.if_else(pc.is_in(numbers, pa.array(NO_VALUE)), "nan", numbers)
    try:
        return pc.cast(numbers, pa.float64()).to_numpy(), ()
    except pa.ArrowInvalid:
        row, label = next((row, text) for row, text in enumerate(numbers.to_pylist()) if not is_number(text))
        raise LabelFault(row, f"the label is {shown(label)}; write a number") from None


def _are_names(column: pa.ChunkedArray) -> bool:
    """Return whether all labels are whole numbers, and one of them would not be the name that it is as a number."""
    if not pc.any(pc.match_substring_regex(column, _NAME)).as_py():
        return False
    filled = pc.filter(column, pc.invert(pc.is_in(column, pa.array(NO_VALUE))))
    return bool(pc.all(pc.match_substring_regex(filled, _WHOLE)).as_py())


def _texts(column: pa.ChunkedArray, drops: bool, *, mixed: bool) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    texts, codes = _coded(column)
    odd = [code for code, text in enumerate(texts) if (not text and not drops) or (not mixed and is_number(text))]
    if (fault := np.isin(codes, odd)).any():
        row = int(fault.argmax())
        label = texts[codes[row]]
        if mixed:
            raise LabelFault(row, f"the label is {shown(label)}; write one")
        raise LabelFault(
            row, f"labels {label[:40]!r} and {texts[codes[0]][:40]!r}; write all labels as numbers, or all as texts"
        )
    if not texts[0]:  # sorted: the empty one is the first
        return codes - 1, tuple(texts[1:])
    return codes, tuple(texts)


def _coded(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts, stripped and sorted, and each row's index among them."""
    column = column.unify_dictionaries()
    texts = [text.strip() for text in column.chunk(0).dictionary.to_pylist()]
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
    ordered = sorted(set(texts))
    rank = {text: index for index, text in enumerate(ordered)}
    return ordered, np.array([rank[text] for text in texts], np.int64)[codes]
