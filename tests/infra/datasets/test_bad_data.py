"""Unusable files of every kind and form: one line that names the file, the place and the fix."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.kinds import KINDS
from proteus_spot.infra.errors import InputError

EXAMPLES = "".join(f"{i % 3},{i % 5},{i % 2}\n" for i in range(40))
SPARSE = "".join(f"{i % 2} 1:{i % 3} 3:{i % 5 + 1}\n" for i in range(40))
RATINGS = "".join(f"{user},{item},{user * item % 5}\n" for user in range(10) for item in range(8))
LDA_C = "".join(f"2 {d % 5}:2 {5 + d % 3}:1\n" for d in range(20))
UCI = "20\n8\n40\n" + "".join(f"{d + 1} {d % 5 + 1} 2\n{d + 1} {6 + d % 3} 1\n" for d in range(20))
#: Kind, name and content of a valid file.
GOOD = {
    "csv": ("examples", "a.csv", EXAMPLES),
    "svmlight": ("examples", "a.svm", SPARSE),
    "ratings": ("ratings", "a.csv", RATINGS),
    "tabs": ("ratings", "a.tsv", RATINGS.replace(",", "\t")),
    "colons": ("ratings", "a.dat", RATINGS.replace(",", "::")),
    "LDA-C": ("documents", "a.ldac", LDA_C),
    "UCI": ("documents", "a.txt", UCI),
}
ALL = pytest.mark.parametrize("form", GOOD)
MARK = b"\xef\xbb\xbf"


def rows(form: str, folder: Path, data: bytes, ending: str = "") -> int:
    kind, name, _ = GOOD[form]
    (folder / (name + ending)).write_bytes(data)
    return KINDS[kind](str(folder / (name + ending)), 4, None).rows


def refused(form: str, folder: Path, data: bytes, says: str, ending: str = "") -> None:
    with pytest.raises(InputError, match=says) as caught:
        rows(form, folder, data, ending)
    assert GOOD[form][1] in str(caught.value)
    assert "\n" not in str(caught.value)


def good(form: str) -> bytes:
    return GOOD[form][2].encode()


@ALL
def test_line_ends_blank_lines_and_a_mark_change_nothing(tmp_path: Path, form: str) -> None:
    data = good(form)
    same = [data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\n\n"), MARK + data, data.rstrip(b"\n")]
    same += [data.decode().encode("utf-16")]  # with its mark, as PowerShell writes what a command prints
    assert len({rows(form, tmp_path, other) for other in [data, *same]}) == 1


@ALL
@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "is empty; give"), (b"\n\r\n  \n", "is empty; give"), (MARK, "is empty; give")],
    ids=["nothing", "blank lines", "a mark"],
)
def test_what_is_empty(tmp_path: Path, form: str, data: bytes, says: str) -> None:
    refused(form, tmp_path, data, says)


@ALL
def test_what_is_no_text_or_cut_short(tmp_path: Path, form: str) -> None:
    data = good(form)
    binary = "is a binary file, not the text that its ending"
    refused(form, tmp_path, np.random.default_rng(0).bytes(3000), binary)
    for encoding in ("utf-16-le", "utf-16-be"):
        refused(form, tmp_path, data.decode().encode(encoding), binary)
    refused(form, tmp_path, data + b"\0", binary)
    packed = gzip.compress(data)
    for end in (2, 10, len(packed) - 20):
        refused(form, tmp_path, packed[:end], "gzip stream is damaged or cut short; fetch the file again", ".gz")
    refused(form, tmp_path, gzip.compress(b""), "is empty; give", ".gz")
    refused(form, tmp_path, data + b"\xff\xfe\n", rf"line {data.count(10) + 1}: ")


@ALL
def test_what_is_not_there_or_no_file(tmp_path: Path, form: str) -> None:
    kind, name, _ = GOOD[form]
    with pytest.raises(InputError, match="there is no such file; check the path"):
        KINDS[kind](str(tmp_path / name), 4, None)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="is a directory; name a file in it"):
        KINDS[kind](str(tmp_path / name), 4, None)


#: A line that is added to a valid file, and its error.
LINES = {
    "csv": [
        ("1,2", "has 2 columns and the first row 3; fix the row"),
        ("1,2,0,3", "has 4 columns and the first row 3"),
        ("1,nan,0", "column 2 has no value; 1 cell has none: --empty drop"),
        ("1,1e39,0", "a value is inf; write finite numbers that fit a float32"),
        ("1,,0", "column 2 has no value; 1 cell has none"),
        ("1,x,1", "column 2 is 'x'; write a number"),
        ("1,2,rose", "the label is 'rose'; write a number"),
        ("1,2,1e400", "the label is inf; write a finite number"),
        ("1,2,7", "the only row with label 7; a class needs two"),
        ('"1,2,0', "a quote is opened and not closed in the line; double it, or remove it"),
    ],
    "svmlight": [
        ("1 3:1 2:1", "index 2 comes after 3; write each once"),
        ("1 -1:2", "index -1 is below 0 or beyond 2147483647; number the features from 1"),
        ("1 2147483648:1", "is below 0 or beyond"),
        ("1 a:1", "'a:1' is not an index:value; write"),
        ("1 1", "'1' is not an index:value; write"),
        ("1 1:", "value '' of index 1 is not a number; write one"),
        ("1 1:inf", "a value is inf; write finite numbers"),
        ("x 1:1", "label 'x' is not a number; write one"),
        ("nan 1:1", "the label is nan; write a finite number"),
        ("1:1", "no label before '1:1'; write"),
        ("1,2 1:1", "several labels, '1,2'; give one"),
    ],
    "ratings": [
        ("11,1", "has 2 columns and the first row 3; fix the row"),
        ("11,1,3,4", "has 4 columns"),
        ("11,1,nan", "the rating is nan; write a finite number"),
        ("11,1,1e39", "the rating is inf; write a finite number"),
        ("11,1,", "the rating is empty; write a number"),
        ("11,1,x", "the rating is 'x'; write a number"),
        (",1,3", "the user is empty; name each"),
        ("11,,3", "the item is empty; name each"),
        ("1,1,3", "user 1 rated item 1 before, in line 10; give each pair once"),
    ],
    "LDA-C": [
        ("2 1:1", "says 2 terms and has 1; fix the first number"),
        ("1 1:0", "write whole numbers, the count from 1 to 1000000"),
        ("1 1:-1", "write whole numbers"),
        ("1 -1:1", "write whole numbers"),
        ("1 1:1.5", "write whole numbers"),
        ("1 1:2000000000", "the count from 1 to 1000000"),
        ("1 99999999999:1", "write whole numbers"),
        ("x 1:1", "'x' is not a number of terms; write"),
    ],
}
LINES["tabs"] = [(line.replace(",", "\t"), says) for line, says in LINES["ratings"]]
LINES["colons"] = [(line.replace(",", "::"), says) for line, says in LINES["ratings"]]


@pytest.mark.parametrize(("form", "line", "says"), [(form, *case) for form, cases in LINES.items() for case in cases])
def test_a_bad_line_is_named(tmp_path: Path, form: str, line: str, says: str) -> None:
    data = good(form)
    number = data.count(b"\n") + 1
    refused(form, tmp_path, data + f"{line}\n".encode(), rf"line {number}: .*{says}")
    refused(form, tmp_path, data + f"\n\n{line}\n".encode(), rf"line {number + 2}: .*{says}")


@pytest.mark.parametrize(
    ("header", "line", "says"),
    [
        ("20 8 40", "", "not a number|says|not a term"),
        ("19\n8\n40", "", "line 42: docID is 20; want 1 to 19"),
        ("20\n7\n40", "", "line 9: wordID is 8; want 1 to 7"),
        ("20\n8\n39", "", "line 3: says 39 entries and 40 follow"),
        ("20\n8\n41", "", "line 3: says 41 entries and 40 follow"),
        ("2000000000\n8\n40", "", "line 1: says 2000000000 documents; want at most"),
        ("20\n8\nx", "", "line 3: want a header of three lines"),
        ("9" * 5000, "", "line 1: '9+' is not a number|want a header of three lines"),
        ("20\n8\n41", "1 1", "line 44: '1 1' is not a docID wordID count"),
        ("20\n8\n41", "1 0 1", "line 44: wordID is 0; want 1 to 8"),
        ("20\n8\n41", "1 1 0", "line 44: count is 0; want 1 to 1000000"),
        ("20\n8\n41", "1 1 2000000000", "line 44: count is 2000000000; want 1 to 1000000"),
        ("20\n8\n41", "1 1 -1", "line 44: .* write three whole numbers"),
    ],
)
def test_a_bad_bag_of_words_is_told_by_line(tmp_path: Path, header: str, line: str, says: str) -> None:
    body = UCI.split("\n", 3)[3] + (f"{line}\n" if line else "")
    refused("UCI", tmp_path, f"{header}\n{body}".encode(), says)


X, Y = np.ones((20, 3), np.float32), np.arange(20) % 2


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X}, "has no array 'y'"),
        ({"x": X, "y": Y[:-1]}, "y of shape \\(19,\\); want"),
        ({"x": X[:0], "y": Y[:0]}, "holds no examples"),
        ({"x": X.astype(str), "y": Y}, "want numbers"),
        ({"x": X.astype(object), "y": Y}, "is not a readable .npz file"),
        (
            {"x": np.where(np.arange(20)[:, None] == 3, np.nan, X), "y": Y},
            "row 3: column 1 has no value; 3 cells in 3 columns have none",
        ),
        ({"x": X.astype(float) * 1e300, "y": Y}, "row 0: a value is inf"),
        ({"x": X, "y": np.where(Y, np.inf, 0)}, "row 1: the label is inf"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, np.ndarray], says: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=says) as caught:
        KINDS["examples"](str(tmp_path / "a.npz"), 4, None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", [0, 100, -30])
def test_an_npz_that_is_cut_short_or_is_a_single_array(tmp_path: Path, end: int) -> None:
    whole, single = io.BytesIO(), io.BytesIO()
    np.savez(whole, x=X, y=Y)
    np.save(single, X)
    for data in (whole.getvalue()[:end], single.getvalue()):
        (tmp_path / "a.npz").write_bytes(data)
        with pytest.raises(InputError, match=r"a.npz: is not a readable .npz file of plain arrays: .") as caught:
            KINDS["examples"](str(tmp_path / "a.npz"), 4, None)
        assert "manager" not in str(caught.value)
