"""Readers of data files on damaged files: arrays come, or one line of `InputError`, and memory stays within bounds."""

import bz2
import gzip
import io
import lzma
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proteus_spot.infra.datasets import documents, ratings
from proteus_spot.infra.datasets.data_files import read_content, read_data
from proteus_spot.infra.datasets.formats.example_table import examples
from proteus_spot.infra.datasets.kinds import KINDS
from proteus_spot.infra.errors import InputError

#: Bytes that a reader may take besides 20 times the unpacked file.
FREE, TIMES = 300 * 2**20, 20


def archive(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def idx(kind: int, *lengths: int, values: bytes) -> bytes:
    return bytes([0, 0, kind, len(lengths)]) + struct.pack(f">{len(lengths)}I", *lengths) + values


#: Name of a file, and good contents of it.
EXAMPLES: dict[str, list[bytes]] = {
    "a.csv": [
        "".join(f"{i % 3},{i / 7:.3f},{i % 2}\n" for i in range(24)).encode(),
        "".join([",a,b,species\n", *(f'{i},{i % 3},-{i}e-1,"k {i % 2}"\n' for i in range(16))]).encode(),
    ],
    "a.tsv": ["".join(f"{i % 3}\t{i / 7:.3f}\t{'ab'[i % 2]}\n" for i in range(24)).encode()],
    "a.svm": [b"# features: 9\n" + b"".join(b"%d qid:1 1:%d 3:0.5 # c\n" % (i % 2, i) for i in range(24))],
    "a.txt": [b"".join(b"%d 0:%d 7:0.5\n" % (i % 2 * 2 - 1, i) for i in range(24))],
    "a": [
        b"".join(b"%d 2:%d\n" % (i % 2, i) for i in range(24)),
        b"".join(b"%d,2,%d\n" % (i, i % 2) for i in range(24)),
        archive(x=np.eye(12), y=np.arange(12) % 2),
    ],
    "a.npz": [archive(x=np.ones((12, 2), np.float32), y=np.arange(12) % 3), archive(x=np.ones((3, 2)), y=np.ones(3))],
    "a-images-idx3-ubyte": [idx(8, 10, 2, 3, values=bytes(range(60))), idx(13, 10, 1, 2, values=bytes(80))],
}
RATINGS: dict[str, list[bytes]] = {
    f"a.{ending}": [
        "".join(f"{u}{mark}{i}{mark}{u * i % 5}{mark}8800000{u}{i}\n" for u in range(6) for i in range(6)).encode(),
        "".join(
            [f"item{mark}when{mark}user{mark}stars\n"]
            + [f"film{between}{i}{mark}1{mark}user{between}{u}{mark}{u * i % 5}\n" for u in range(6) for i in range(6)]
        ).encode(),
    ]
    for ending, mark, between in (
        ("csv", ",", " "),
        ("tsv", "\t", " "),
        ("dat", "::", " "),
        ("txt", " ", "_"),
        ("data", ";", '"'),
        ("jester", "\t\t", " "),
    )
}
DOCUMENTS: dict[str, list[bytes]] = {
    "a.ldac": [b"".join(b"2 %d:2 %d:1\n" % (d % 5, 5 + d % 3) for d in range(20))],
    "a.txt": [b"20\n8\n40\n" + b"".join(b"%d %d 2\n%d %d 1\n" % (d, d % 5 + 1, d, 6 + d % 3) for d in range(1, 21))],
}

#: What is put into a file.
SCRAPS = [
    b"\0", b'"', b"'", b"\n", b"\r", b"\r\n", b"\t", b",", b";", b":", b"::", b" ", b"#", b"\xef\xbb\xbf", b"\xff\xfe",
    b"\xff",
    b"\x1f", b"\x1f\x8b", b"-", b"-1", b"+", b".", b"1e400", b"-1e39", b"nan", b"inf", b"NA", b"0x10", b"1_0",
    "٣½é\u2028".encode(),
    b"2147483647", b"2147483648", b"4294967295", b"9223372036854775808", b"9" * 30, b"9" * 5000, b"1:1", b"0:0",
    b"1000000",
    b"\n\n", b"\n1\n", b"user,item,rating\n", b"label", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"qid:", b"x" * 3000,
]  # fmt: skip

Mutation = Callable[[bytes], bytes]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """Draw one thing that befalls a file."""
    kind = draw(st.sampled_from(["flip", "cut", "drop", "double", "swap", "insert", "replace", "encode", "ends"]))
    at, span = draw(st.floats(0, 1)), draw(st.integers(1, 40))
    scrap, value = draw(st.sampled_from(SCRAPS)), draw(st.integers(1, 255))

    def mutated(data: bytes) -> bytes:
        low = int(at * len(data))
        high = low + span
        if kind == "flip":
            return data[:low] + bytes(byte ^ value for byte in data[low : low + 1]) + data[low + 1 :]
        if kind == "ends":
            return data.replace(b"\n", [b"\r\n", b"\r", b"\n\n", b" \n", b""][value % 5])
        if kind == "encode":
            text = data.decode("latin-1")
            return [b"\xef\xbb\xbf" + data, text.encode("utf-16"), text.encode("utf-16-be"), b"", data * 3][value % 5]
        return {
            "cut": data[:low],
            "drop": data[:low] + data[high:],
            "double": data[:high] + data[low:],
            "swap": data[:low] + data[high : high + span] + data[low:high] + data[high + span :],
            "insert": data[:low] + scrap + data[low:],
            "replace": data[:low] + scrap + data[low + len(scrap) :],
        }[kind]

    return mutated


PACKED: list[Mutation] = [
    gzip.compress, bz2.compress, lzma.compress, lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, good: dict[str, list[bytes]]) -> tuple[str, bytes, int]:
    """Draw the name and the damaged content of a file, and its size unpacked."""
    name = draw(st.sampled_from(sorted(good)))
    data = draw(st.sampled_from(good[name]))
    for mutated in draw(st.lists(mutations(), max_size=4)):
        data = mutated(data)
    size = len(data)
    if draw(st.integers(0, 4)) == 0:
        data = draw(st.sampled_from(PACKED))(data)
        for mutated in draw(st.lists(mutations(), max_size=2)):
            data = mutated(data)
    return name, data, max(size, len(data))


def peak_bytes(action: Callable[[], Any]) -> int:
    """Return by how much the memory of this process was larger at its largest while `action` ran."""

    def status(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = status("VmRSS")
    action()
    return status("VmHWM") - before


def refused(action: Callable[[], Any]) -> str:
    """Return what is said where `action` refuses its input, else nothing; any other error is one of the test."""
    said = ""
    try:
        action()
    except InputError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1, said
    assert len(said) < 1000
    return said


def readings_of_examples(source: str) -> Iterator[Callable[[], Any]]:
    def whole(app: str) -> None:
        found = KINDS["examples"](source, 2, app)
        for arrays in (*found.parts(0), found.heldout()):
            for array in arrays.values():
                assert array.dtype.kind != "f" or np.isfinite(array).all()

    def new(n_inputs: int, labels: bool) -> None:
        examples(source, read_data(source, 1, n_inputs, labels))

    yield from ((lambda app=app: whole(app)) for app in ("mlr", "kmeans", "my:Own"))
    yield from ((lambda n=n, labels=labels: new(n, labels)) for n in (1, 2, 3) for labels in (True, False))


def readings_of_ratings(source: str) -> Iterator[Callable[[], Any]]:
    def whole() -> None:
        found = KINDS["ratings"](source, 2, "mf")
        for arrays in (*found.parts(0), found.heldout()):
            assert np.isfinite(arrays["values"]).all()

    numbers, texts = np.arange(6), np.array([f"user {u}" for u in range(6)] + [f"film {i}" for i in range(6)])
    yield whole
    yield from ((lambda names=names: ratings.read_new(source, names, names)) for names in (numbers, texts))


def readings_of_documents(source: str) -> Iterator[Callable[[], Any]]:
    def whole() -> None:
        found = KINDS["documents"](source, 2, "lda")
        for arrays in (*found.parts(0), found.heldout()):
            assert arrays["offsets"][-1] == len(arrays["words"])

    yield whole
    yield lambda: documents.read_new(source, 8)
    yield lambda: documents.read_vocabulary(source, 20)


KIND: dict[str, tuple[dict[str, list[bytes]], Callable[[str], Iterator[Callable[[], Any]]]]] = {
    "examples": (EXAMPLES, readings_of_examples),
    "ratings": (RATINGS, readings_of_ratings),
    "documents": (DOCUMENTS, readings_of_documents),
}


def fuzz(kind: str, folder: Path, n: int) -> None:
    good, readings = KIND[kind]
    (folder / "a-labels-idx1-ubyte").write_bytes(idx(8, 10, values=bytes([0, 1] * 5)))
    (folder / "b-images-idx3-ubyte").write_bytes(idx(8, 10, 2, 3, values=bytes(range(60))))

    @settings(max_examples=n, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(damaged(good))
    def all_are_read_or_refused(file: tuple[str, bytes, int]) -> None:
        name, data, size = file
        source = folder / name
        source.write_bytes(data)
        for reading in readings(str(source)):
            assert peak_bytes(lambda reading=reading: refused(reading)) <= FREE + TIMES * size  # type: ignore[misc]
        if "images" in name:  # as labels too
            (folder / "b-labels-idx1-ubyte").write_bytes(data)
            refused(lambda: KINDS["examples"](str(folder / "b-images-idx3-ubyte"), 2, "my:Own"))

    all_are_read_or_refused()


@pytest.mark.parametrize("kind", KIND)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    fuzz(kind, tmp_path, 150)


@pytest.mark.storm
@pytest.mark.parametrize("kind", KIND)
def test_thousands_of_damaged_files_are_read_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    fuzz(kind, tmp_path, 10_000)


@pytest.mark.parametrize("kind", KIND)
def test_what_is_damaged_is_good_otherwise(tmp_path: Path, kind: str) -> None:
    """Each seed is read by one reader at least: what is refused is refused for its damage."""
    good, readings = KIND[kind]
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(idx(8, 10, values=bytes([0, 1] * 5)))
    for name, contents in good.items():
        for data in contents:
            for pack in (bytes, *PACKED):
                (tmp_path / name).write_bytes(pack(data))
                assert "" in [refused(reading) for reading in readings(str(tmp_path / name))]


# -- small files that claim, or unpack to, much ------------------------------------------------------------------------


def head(*shape: int) -> bytes:
    """Return the head of an array in a `.npz` file, without its values."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def bomb(pack: Callable[[bytes], bytes], line: bytes) -> bytes:
    """Return a stream that unpacks to some 200 MB: one of a MB, again and again."""
    return pack(line * (2**20 // len(line))) * 200


def pairs(users: int) -> bytes:
    """Ratings of as many users, one each."""
    return b"".join(b"u%d,%d,1\n" % (user, user % 9) for user in range(users))


ONES = b",".join([b"1"] * 150_000)
CLAIMS: dict[str, tuple[str, str, Callable[[], bytes], str]] = {
    "IDX of 4 GB": (
        "examples",
        "a-images-idx3-ubyte",
        lambda: idx(8, 2**16, 2**8, 2**8, values=b""),
        "4294967296 bytes",
    ),
    "IDX of all": ("examples", "a-images-idx3-ubyte", lambda: idx(14, *[2**32 - 1] * 8, values=b""), "and holds 0"),
    "svmlight index": ("examples", "a.svm", lambda: b"1 2147483647:1\n0 1:1\n" * 9, ""),
    "svmlight features": ("examples", "a.svm", lambda: b"# features: 2147483647\n" + b"1 1:1\n0 1:1\n" * 99, ""),
    "CSV columns": (
        "examples",
        "a.csv",
        lambda: (ONES + b",0\n" + ONES + b",1\n") * 2,
        "has 150001 columns, and a file of",
    ),
    "npz 16 GB": ("examples", "a.npz", lambda: zipped(x=head(10**9, 4), y=head(10**9)), "is not a readable .npz file"),
    "npz of all": ("examples", "a.npz", lambda: zipped(x=head(2**62, 4), y=head(2**62)), "is not a readable .npz file"),
    "npz bomb": (
        "examples",
        "a.npz",
        lambda: zipped(x=head(10**7, 4) + bytes(16 * 10**7), y=head(9)),
        "zip archive unpacks to more than 500 times",
    ),
    "long name": ("ratings", "a.csv", lambda: b"x" * 10**5 + b",1,1\n" + pairs(9999),
                  "the user has 100000 bytes, too many for one of 10000 names"),
    "far ids": (
        "ratings",
        "a.csv",
        lambda: b"".join(b"%d,%d,%d\n" % (u * 10**13, u % 9, u % 3) for u in range(999)),
        "too few",
    ),
    "many columns": ("ratings", "a.csv", lambda: (b"1,2,3" + b",a" * 40_000 + b"\n") * 2, "give each pair once"),
    "counts": (
        "documents",
        "a.ldac",
        lambda: b"1 0:1000000\n" * 99,
        "has 99000000 tokens, and a file of 1188 bytes may have",
    ),
    "words": ("documents", "a.ldac", lambda: b"2 0:1 2147483646:1\n" * 9, "line 1: term is 2147483646; want less than"),
    "UCI documents": (
        "documents",
        "a.txt",
        lambda: b"134217728\n5\n1\n1 1 1\n",
        "line 1: says 134217728 documents; want at most",
    ),
    "UCI words": (
        "documents",
        "a.txt",
        lambda: b"5\n2147483647\n1\n1 1 1\n",
        "line 2: says 2147483647 words; want at most",
    ),
    "gzip bomb": (
        "examples",
        "a.csv.gz",
        lambda: bomb(gzip.compress, b"1,2,0\n"),
        "gzip stream unpacks to more than 500 times",
    ),
    "bz2 bomb": (
        "examples",
        "a.svm.bz2",
        lambda: bomb(bz2.compress, b"1 1:1\n"),
        "bz2 stream unpacks to more than 500 times",
    ),
    "xz bomb": (
        "ratings",
        "a.csv.xz",
        lambda: bomb(lzma.compress, b"1,2,0\n"),
        "xz stream unpacks to more than 500 times",
    ),
    "zstd bomb": (
        "documents",
        "a.txt.zst",
        lambda: bomb(PACKED[3], b"1 0:1\n"),
        "zstd stream unpacks to more than 500 times",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CLAIMS)
def test_a_small_file_takes_little_memory_whatever_it_claims(tmp_path: Path, case: str) -> None:
    kind, name, content, says = CLAIMS[case]
    data = content()
    (tmp_path / name).write_bytes(data)
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(idx(8, 2, values=bytes([0, 1])))

    def read() -> None:
        found = KINDS[kind](str(tmp_path / name), 2, None)
        assert sum(len(arrays) for arrays in found.parts(0))

    said: list[str] = []
    assert peak_bytes(lambda: said.append(refused(read))) <= FREE + TIMES * len(data)
    assert (says in said[0]) if says else not said[0], said


@pytest.mark.parametrize("pack", PACKED)
def test_what_unpacks_to_a_few_hundred_times_its_size_is_read(tmp_path: Path, pack: Mutation) -> None:
    (tmp_path / "a.csv").write_bytes(pack(b"1,2,0\n3,4,1\n" * 10_000))
    assert len(read_content(str(tmp_path / "a.csv"), [".csv"], [])) == 120_000
