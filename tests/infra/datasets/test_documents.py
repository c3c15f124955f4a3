"""Files of documents: both forms, compressed or not; refused files; partitions."""

import bz2
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.infra.datasets.documents import read, read_new, read_vocabulary
from proteus_spot.infra.datasets.formats.word_counts import as_arrays, first_word_from, read_bags
from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, part_name

LDAC = b"2 0:1 3:2\n0\n1 2:1\n"
UCI = b"3\n4\n3\n1 1 1\n1 4 2\n3 3 1\n"


@pytest.mark.parametrize(
    "data", [LDAC, UCI, LDAC.replace(b"\n", b"\r\n"), b"3\n4\n3\n3 3 1\n1 1 1\n1 4 2", b"\n" + LDAC]
)
def test_both_forms_say_the_same(data: bytes) -> None:
    bags = read_bags("a.txt", data)
    words, offsets = as_arrays(bags)
    assert words.tolist() == [0, 3, 3, 2]
    assert words.dtype == np.int32
    assert offsets.tolist() == [0, 3, 3, 4]
    assert bags.n_words == 4


@given(st.lists(st.dictionaries(st.integers(0, 20), st.integers(1, 5), max_size=6), min_size=1, max_size=8).filter(any))
def test_what_is_written_is_read(documents: list[dict[int, int]]) -> None:
    ldac = "".join(f"{len(d)} {' '.join(f'{w}:{c}' for w, c in d.items())}\n" for d in documents)
    rows = [f"{i} {w + 1} {c}" for i, d in enumerate(documents, start=1) for w, c in d.items()]
    uci = "\n".join(map(str, [len(documents), 21, len(rows), *rows]))
    if not documents[0]:
        ldac = "1 0:1\n" + ldac  # a file that begins with one number above 0 is of the other form; 0 is not
    expected = [w for d in documents for w, c in d.items() for _ in range(c)]
    found = as_arrays(read_bags("a", ldac.encode()))[0].tolist()
    assert found[0 if documents[0] else 1 :] == expected
    assert as_arrays(read_bags("a", uci.encode()))[0].tolist() == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "a.txt: is empty"),
        (b"1 0:1\n2 0:1\n", "a.txt: line 2: says 2 terms and has 1"),
        (b"1 0:1\n1 0:1.5\n", "a.txt: line 2: '0:1.5' is not a term:count"),
        (b"1 0:1\n2 3:1:2 4\n", "a.txt: line 2: '3:1:2' is not a term:count"),
        (b"1 0:1\n1 1 :2\n", "a.txt: line 2: '1' is not a term:count"),
        (b"1 0:1\n\n1 1:0\n", "a.txt: line 3: '1:0' is not a term:count"),
        (b"1 0:1\nx 1:1\n", "a.txt: line 2: 'x' is not a number of terms"),
        (b"1 99999999999:1\n", "a.txt: line 1: '99999999999:1' is not a term:count"),
        (b"0\n0\n", "a.txt: has no words"),
        (b"3\n4\n1\n", "a.txt: line 3: says 1 entries and 0 follow"),
        (b"3\n4\n", "a.txt: line 2: want a header of three lines"),
        (b"3\n4\n2\n1 1 1\n1 5 2\n", "a.txt: line 5: wordID is 5; want 1 to 4"),
        (b"3\n4\n2\n1 1 1\n0 1 2\n", "a.txt: line 5: docID is 0; want 1 to 3"),
        (b"3\n4\n2\n1 1 1\n1 2 0\n", "a.txt: line 5: count is 0"),
        (b"3\n4\n2\n1 1 1\n1 2\n", "a.txt: line 5: '1 2' is not a docID wordID count"),
        (b"3\n4\n2\n1 1 1\n1 2 x\n", "a.txt: line 5: '1 2 x' is not a docID wordID count"),
    ],
)
def test_faults_are_named_by_line(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as told:
        read_bags("a.txt", data)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("ending", "packed"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_files_may_be_packed(tmp_path: Path, ending: str, packed: object) -> None:
    path = tmp_path / f"docword.a.txt{ending}"
    path.write_bytes(packed(b"2 0:1 1:1\n" * 20))  # type: ignore[operator]
    data = read(str(path), 2)
    assert (data.rows, data.heldout_rows) == (18, 2)
    assert data.sizes == {"n_words": 2, "n_tokens": 36, "n_documents": 18, "n_partitions": 2}


def test_unknown_names_and_too_few_documents_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="known are topics"):
        read("nothing", 1)
    path = tmp_path / "a.ldac"
    path.write_bytes(b"2 0:1 1:1\n" * 3)
    with pytest.raises(InputError, match="too few for 3 parts"):
        read(str(path), 3)
    path.write_bytes(b"1 0:1\n" * 3)
    with pytest.raises(InputError, match="no document has two words"):
        read(str(path), 1)


def test_partitions_have_all_tokens_in_order_and_about_equally_many() -> None:
    data = read("topics", 7)
    parts = list(data.parts(3))
    sizes = [len(p["words"]) for p in parts]
    assert [int(p["partition"][0]) for p in parts] == list(range(7))
    assert [int(p["token_start"][0]) for p in parts] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert sum(sizes) == data.sizes["n_tokens"]
    assert max(sizes) - min(sizes) < 2 * np.diff(data.train.offsets).max()
    counts = np.bincount(np.concatenate([p["words"] for p in parts]), minlength=1000)
    assert all(np.array_equal(p["word_counts"], counts) for p in parts), "of all of them"
    ids = np.concatenate([p["ids"] for p in parts])
    assert sorted([*ids, *data.heldout()["ids"]]) == list(range(1200))
    for p in parts:
        first = int(np.flatnonzero(data.train.ids == p["ids"][0])[0])
        assert np.array_equal(
            p["words"][: p["offsets"][1]], data.train.words[slice(*data.train.offsets[first : first + 2])]
        )
    assert not np.array_equal(ids, np.concatenate([p["ids"] for p in data.parts(4)]))


@given(lengths=st.lists(st.integers(2, 50), min_size=8, max_size=20), n_partitions=st.integers(1, 7))
def test_every_partition_has_a_document(lengths: list[int], n_partitions: int) -> None:
    from proteus_spot.infra.datasets.documents import Documents, DocumentSet

    offsets = np.concatenate([[0], np.cumsum(lengths)])
    of = Documents(np.zeros(offsets[-1], np.int32), offsets, np.arange(len(lengths)))
    assert all(len(p["ids"]) for p in DocumentSet(of, of, 1, n_partitions).parts(0))


def test_a_job_gets_them(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    data = prepare(blobs, "job", "topics", 3, 0, "lda")
    found = Blobs(data.data_url)
    assert set(found.read_npz(part_name(0))) == {"words", "offsets", "ids", "partition", "token_start", "word_counts"}
    assert len(found.read_npz(HELD_OUT)["ids"]) == data.heldout_rows == 120
    assert prepare(blobs, "job", "topics", 3, 0, "lda") == data


def test_documents_to_predict_from_keep_their_numbers_and_have_known_words(tmp_path: Path) -> None:
    path = tmp_path / "a.ldac"
    path.write_bytes(LDAC)
    found = read_new(str(path), 4)
    assert (found.words.tolist(), found.offsets.tolist(), found.ids.tolist()) == ([0, 3, 3, 2], [0, 3, 4], [0, 2])
    with pytest.raises(InputError, match=r"a\.ldac: line 1: term is 3; want 0 to 2, as the model was trained"):
        read_new(str(path), 3)
    (tmp_path / "a.txt").write_bytes(UCI)
    with pytest.raises(InputError, match=r"a\.txt: line 5: wordID is 4; want 1 to 3, as"):
        read_new(str(tmp_path / "a.txt"), 3)
    assert len(read_new("topics", 1000)) == 1200


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_first_word_beyond_a_vocabulary_is_found(mark: bytes) -> None:
    assert first_word_from(mark + LDAC, 2) == "line 1: term is 3; want 0 to 1"
    assert first_word_from(mark + b"1 0:7\r\n\r\n2 1:9 2:1", 2) == "line 3: term is 2; want 0 to 1"
    assert first_word_from(mark + UCI, 2) == "line 5: wordID is 4; want 1 to 2"
    assert first_word_from(mark + LDAC, 4) is first_word_from(mark + UCI, 4) is None


def test_a_vocabulary_has_a_word_for_each_id(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("one\ntwo\n")
    assert read_vocabulary(str(path), 2) == ["one", "two"]
    with pytest.raises(InputError, match="has 2 words and the documents 3"):
        read_vocabulary(str(path), 3)
