"""Word counts in LDA-C files (lines ``M term:count …``) and UCI bag-of-words files (lines ``docID wordID count``).

Both are read as one array of whole numbers and their line numbers, without a loop over lines; only in a faulty file are
the lines searched for the first fault.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import BYTE_ORDER_MARK

I64 = NDArray[np.int64]
#: Largest id, count and number of tokens: they are int32.
_MOST = 2**31 - 1
#: What is more than these is a slip, and would take all memory before it is seen: every token is a number of its own. A
#: file that is large itself may have as many documents, words and tokens as it has bytes.
_MOST_COUNT, _MOST_DOCUMENTS, _MOST_WORDS, _MOST_TOKENS = 10**6, 2**20, 2**24, 2**23
#: What may stand in such a file besides digits.
_BETWEEN = b" \t\r\n:"
_COLON, _BREAK = ord(":"), ord("\n")


@dataclass(frozen=True)
class Bags:
    """Word counts in the order of documents: `document`, `word` (both from 0) and `count`, each (entries,)."""

    document: I64
    word: I64
    count: I64
    n_documents: int
    n_words: int


def read_bags(source: str, data: bytes) -> Bags:
    """Return the word counts of a file with the content `data`; `source` is its name in errors.

    A first line with one number above 0 begins a UCI file (its header is D, W and the number of entries, one per line;
    ids count from 1), any other an LDA-C file (ids count from 0; the number of words is the largest id plus one).

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    if not data.strip():
        raise InputError(f"{source}: is empty; give word counts, LDA-C or UCI bag of words")
    uci = _is_uci(data)
    found = _numbers(data)
    size = len(data)
    bags = None if found is None else (_uci(*found[:2], size) if uci else _ldac(*found, size))
    if bags is None:
        raise InputError(f"{source}: {_uci_fault(data) if uci else _ldac_fault(data)}")
    if (tokens := int(bags.count.sum())) > (most := min(_MOST, max(_MOST_TOKENS, size))):
        raise InputError(
            f"{source}: has {tokens} tokens, and a file of {size} bytes may have {most}; divide the counts"
        )
    if not len(bags.count):
        raise InputError(f"{source}: has no words; give documents that have some")
    return bags


def first_word_from(data: bytes, least: int) -> str | None:
    """Return the location of the first word whose id, counted from 0, is at least `least`, in a valid file."""
    data = data.removeprefix(BYTE_ORDER_MARK)
    uci = _is_uci(data)
    lines = [(number, re.findall(rb"\d+", line)) for number, line in enumerate(data.split(b"\n"), start=1)]
    lines = [(number, found) for number, found in lines if found]
    for number, found in lines[3:] if uci else lines:
        for word in (
            int(digits.lstrip(b"0") or b"0") for digits in found[1::2]
        ):  # docID wordID count, or M term:count …
            if word - uci >= least:
                return f"line {number}: {'wordID' if uci else 'term'} is {word}; want {int(uci)} to {least - 1 + uci}"
    return None


def _is_uci(data: bytes) -> bool:
    first = data.split(b"\n", 1)[0].split()
    return len(first) == 1 and first[0].isdigit() and bool(first[0].strip(b"0"))  # `int` refuses thousands of digits


def _numbers(data: bytes) -> tuple[I64, I64, NDArray[np.bool_]] | None:
    """Return every whole number, its line (from 0) and whether a colon precedes it; None if there is other text."""
    if data.translate(None, b"0123456789" + _BETWEEN):
        return None
    letters = np.frombuffer(data, np.uint8)
    digit = letters >= ord("0")
    digit &= letters <= ord("9")
    before = np.concatenate([[False], digit[:-1]])
    starts = np.flatnonzero(digit & ~before)
    if not len(starts):
        return None
    breaks, colons = np.flatnonzero(letters == _BREAK), np.flatnonzero(letters == _COLON)
    after = starts > 0
    after[after] = letters[starts[after] - 1] == _COLON
    if len(colons) != after.sum() or (len(colons) and (not colons[0] or not digit[colons - 1].all())):
        return None
    text = data.translate(bytes.maketrans(_BETWEEN, b"\n" * len(_BETWEEN)))
    try:
        column = pa_csv.read_csv(
            pa.BufferReader(text),
            read_options=pa_csv.ReadOptions(column_names=["n"]),
            convert_options=pa_csv.ConvertOptions(column_types={"n": pa.int64()}),
        ).column(0)
    except pa.ArrowInvalid:
        return None  # more digits than an int64 holds
    values = column.to_numpy()
    if len(values) != len(starts) or values.max() > _MOST:
        return None
    return values, np.searchsorted(breaks, starts), after


def _ldac(values: I64, lines: I64, after_colon: NDArray[np.bool_], size: int) -> Bags | None:
    first = np.flatnonzero(np.diff(lines, prepend=-1))
    length = np.diff(np.append(first, len(values)))
    place = np.arange(len(values)) - np.repeat(first, length)  # of a number in its line
    if (length != 1 + 2 * values[first]).any() or (after_colon != ((place > 0) & (place % 2 == 0))).any():
        return None
    word, count = values[place % 2 == 1], values[after_colon]
    if not count.all() or count.max(initial=0) > _MOST_COUNT or word.max(initial=0) >= max(_MOST_WORDS, size):
        return None
    document = np.repeat(np.arange(len(first)), values[first])
    return Bags(document, word, count, len(first), int(word.max(initial=-1)) + 1)


def _uci(values: I64, lines: I64, size: int) -> Bags | None:
    n_documents, n_words, entries = values[:3] if len(values) >= 3 else (0, 0, -1)
    where = np.unique(lines)
    layout = np.repeat(where, np.r_[1, 1, 1, np.full(max(len(where) - 3, 0), 3)][: len(where)])
    if (
        n_documents > max(_MOST_DOCUMENTS, size)
        or n_words > max(_MOST_WORDS, size)
        or len(values) != 3 + 3 * entries
        or not np.array_equal(layout, lines)
    ):
        return None
    document, word, count = values[3:].reshape(-1, 3).T
    if len(word) and (
        min(document.min(), word.min(), count.min()) < 1
        or document.max() > n_documents
        or word.max() > n_words
        or count.max() > _MOST_COUNT
    ):
        return None
    order = np.argsort(document, kind="stable")
    return Bags(document[order] - 1, word[order] - 1, count[order], int(n_documents), int(n_words))


def _ldac_fault(data: bytes) -> str:
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = line.decode(errors="replace").split()
        if not words:
            continue
        if not _whole(words[0]):
            return f"line {number}: {words[0][:40]!r} is not a number of terms; write M term:count …"
        for pair in words[1:]:
            term, colon, count = pair.partition(":")
            if not (colon and _whole(term) and _whole(count)) or not 1 <= int(count) <= _MOST_COUNT:
                wanted = f"whole numbers, the count from 1 to {_MOST_COUNT}"
                return f"line {number}: {pair[:40]!r} is not a term:count; write {wanted}"
            if int(term) >= (most := max(_MOST_WORDS, len(data))):
                return f"line {number}: term is {term}; want less than {most}: number the words from 0"
        if int(words[0]) != len(words) - 1:
            return f"line {number}: says {words[0]} terms and has {len(words) - 1}; fix the first number"
    return "is no LDA-C file; write M term:count … a line"


def _uci_fault(data: bytes) -> str:
    lines = [(number, line.split()) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    header = [words for _, words in lines[:3]]
    if len(header) < 3 or any(len(words) != 1 or not _whole(words[0].decode(errors="replace")) for words in header):
        return (
            f"line {lines[min(len(lines), 3) - 1][0]}: "
            "want a header of three lines, the numbers of documents, words and entries; write it"
        )
    most = [int(words[0]) for words in header]
    for what, line, says, bound in (("documents", 0, most[0], _MOST_DOCUMENTS), ("words", 1, most[1], _MOST_WORDS)):
        if says > max(bound, len(data)):
            return f"line {lines[line][0]}: says {says} {what}; want at most {max(bound, len(data))}"
    for number, found in lines[3:]:
        words = [word.decode(errors="replace") for word in found]
        if len(words) != 3 or not all(map(_whole, words)):
            return f"line {number}: {' '.join(words)[:40]!r} is not a docID wordID count; write three whole numbers"
        for name, word, top in zip(("docID", "wordID", "count"), words, (most[0], most[1], _MOST_COUNT), strict=True):
            if not 1 <= int(word) <= top:
                return f"line {number}: {name} is {word}; want 1 to {top}"
    return (
        f"line {lines[2][0]}: says {most[2]} entries and {len(lines) - 3} follow; "
        "the file is cut short, or fix the number"
    )


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= _MOST


def as_arrays(bags: Bags) -> tuple[NDArray[np.int32], I64]:
    """Return the word of each token (int32) and the offsets of the documents (int64, documents + 1)."""
    words: NDArray[Any] = np.repeat(bags.word.astype(np.int32), bags.count)
    lengths = np.bincount(bags.document, bags.count, bags.n_documents).astype(np.int64)
    return words, np.concatenate([[0], np.cumsum(lengths)])
