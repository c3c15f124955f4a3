import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.storage.blobs import CHUNK, MANIFEST, BlobError, BlobMissing, Blobs, DamagedSet, open_blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from tests.support.buckets import served_bucket


@pytest.fixture(scope="module")
def bucket_url() -> Iterator[str]:
    with served_bucket() as url:
        yield url


@pytest.fixture(params=["file", "memory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "s3":
        return open_blobs(Settings(blob_url=f"{request.getfixturevalue('bucket_url')}/{uuid.uuid4().hex}"))
    return Blobs(tmp_path.as_uri() if request.param == "file" else f"memory://{uuid.uuid4().hex}/")


def test_bytes_json_and_arrays_come_back(blobs: Blobs) -> None:
    blobs.write_bytes("a/b.bin", b"\x00old")
    blobs.write_bytes("a/b.bin", b"\x00new")
    assert blobs.read_bytes("a/b.bin") == b"\x00new"
    blobs.write_json("a/c.json", {"x": [1, 2.5, None]})
    assert blobs.read_json("a/c.json") == {"x": [1, 2.5, None]}
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3).T, "y": np.array([1, 2], np.int32), "s": np.float64(2)}
    blobs.write_npz("d.npz", arrays)
    read = blobs.read_npz("d.npz")
    assert {name: (array.dtype, array.tolist()) for name, array in read.items()} == {
        name: (array.dtype, array.tolist()) for name, array in arrays.items()
    }
    first = blobs.read_bytes("d.npz")
    blobs.write_npz("d.npz", arrays)
    assert blobs.read_bytes("d.npz") == first


def test_a_large_file_is_written_and_read_in_chunks(blobs: Blobs, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(CHUNK) + b"and more" * 2**20)
    manifest = blobs.write_set("set", {"large": source, "small": b"1"})
    blobs.fetch_checked("set", "large", manifest, target)
    assert target.read_bytes() == source.read_bytes() == blobs.read_set("set")["large"]
    assert max(map(len, blobs.read_chunks("set/large"))) == CHUNK
    blobs.write_bytes("set/large", b"another")
    with pytest.raises(DamagedSet, match="has 7 bytes, not 16777216"):
        blobs.fetch_checked("set", "large", manifest, target)
    blobs.remove("set/large")
    with pytest.raises(DamagedSet, match="is in the manifest and not there"):
        blobs.fetch_checked("set", "large", manifest, target)


def test_a_source_that_fails_in_the_middle_leaves_what_was_there(blobs: Blobs) -> None:
    def torn() -> Iterator[bytes]:
        yield bytes(CHUNK)
        yield bytes(CHUNK)
        raise OSError("the disk is gone")

    blobs.write_bytes("a", b"old")
    for name in ("a", "b"):
        with pytest.raises(OSError, match="the disk is gone"):
            blobs.write_chunks(name, torn())
    assert blobs.read_bytes("a") == b"old"
    assert blobs.list() == ["a"]


def test_what_is_there_is_listed_and_what_is_not_is_missing(blobs: Blobs) -> None:
    assert blobs.list() == []
    assert not blobs.exists("a/b")
    assert blobs.size("a/b") is None
    blobs.remove("a/b")
    with pytest.raises(BlobMissing, match="a/b: is not there"):
        blobs.read_bytes("a/b")
    blobs.write_bytes("a/b", b"123")
    blobs.write_bytes("a/c/d", b"")
    blobs.write_bytes("e", b"")
    assert blobs.list() == ["a/b", "a/c/d", "e"]
    assert blobs.list("a") == ["a/b", "a/c/d"]
    assert blobs.list("nothing") == []
    assert blobs.exists("a/b")
    assert blobs.size("a/b") == 3
    blobs.remove("a/b")
    assert not blobs.exists("a/b")


def test_a_set_comes_back_and_exists_only_with_its_manifest(blobs: Blobs) -> None:
    files = {"one.bin": b"1" * 1000, "sub/two.bin": b""}
    written = blobs.write_set("jobs/j/model", files, {"clock": 7})
    assert blobs.read_set("jobs/j/model") == files
    assert blobs.manifest("jobs/j/model") == written
    assert written.about == {"clock": 7}
    blobs.remove(f"jobs/j/model/{MANIFEST}")
    assert blobs.manifest("jobs/j/model") is None
    with pytest.raises(BlobMissing, match="no manifest"):
        blobs.read_set("jobs/j/model")


def test_a_set_whose_writing_breaks_off_is_none_even_where_an_old_one_was(blobs: Blobs) -> None:
    def breaks_off() -> Iterator[tuple[str, bytes]]:
        yield "one.bin", b"new"
        raise RuntimeError("the writer died")

    blobs.write_set("set", {"one.bin": b"old", "two.bin": b"old"})
    with pytest.raises(RuntimeError):
        blobs.write_set("set", breaks_off())
    assert blobs.manifest("set") is None


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b"12345678X", "content differs"),
        (b"12345678", "has 8 bytes, not 9"),
        (None, "is in the manifest and not there"),
    ],
)
def test_a_damaged_set_is_named(blobs: Blobs, damage: bytes | None, reason: str) -> None:
    blobs.write_set("set", {"one.bin": b"123456789", "two.bin": b"2"})
    if damage is None:
        blobs.remove("set/one.bin")
    else:
        blobs.write_bytes("set/one.bin", damage)
    with pytest.raises(DamagedSet, match=f"set/one.bin: .*{reason}") as caught:
        blobs.read_set("set")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("manifest", [b"{}", b"[]", b'{"files": {"a": 1}}', b'{"files": []}'])
def test_a_strange_manifest_is_named(blobs: Blobs, manifest: bytes) -> None:
    blobs.write_bytes(f"set/{MANIFEST}", manifest)
    with pytest.raises(DamagedSet, match="is not a manifest of ours"):
        blobs.manifest("set")


def test_what_cannot_be_parsed_is_named(blobs: Blobs) -> None:
    blobs.write_bytes("x", b"{")
    with pytest.raises(BlobError, match="x: is not JSON"):
        blobs.read_json("x")
    with pytest.raises(BlobError, match=r"x: is not a readable \.npz"):
        blobs.read_npz("x")
    with pytest.raises(ValueError):
        blobs.write_npz("x", {"objects": np.array([object()])})


@pytest.mark.parametrize("name", ["", "/etc/passwd", "a/../../b", "a//b", "./a", "a\\b"])
def test_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    blobs = Blobs(tmp_path.as_uri())
    for touch in (blobs.read_bytes, blobs.exists, blobs.remove, blobs.url_of, blobs.size):
        with pytest.raises(InputError, match="blob name"):
            touch(name)


def test_urls_of_blobs_are_readable_by_themselves(blobs: Blobs) -> None:
    blobs.write_bytes("a/b", b"1")
    folder, name = blobs.url_of("a/b").rsplit("/", 1)
    assert Blobs(folder).read_bytes(name) == b"1"


def test_a_bad_url_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="PROTEUS_BLOB_URL: nosuch://x"):
        Blobs("nosuch://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(BlobError, match="cannot write it"):
        Blobs((tmp_path / "file").as_uri()).write_bytes("a", b"")


WRITER = """
import sys
from proteus_spot.infra.storage.blobs import Blobs
blobs, turn = Blobs(sys.argv[1]), 0
while True:
    turn = (turn + 1) % 256
    blobs.write_bytes("jobs/j/blob", bytes([turn]) * 3_000_000)
    print(turn, flush=True)
"""


def test_a_reader_never_sees_half_a_write_also_when_the_writer_is_killed(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path.as_uri()], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        for _ in range(8):
            writer.stdout.readline()
            data = blobs.read_bytes("jobs/j/blob")
            assert len(data) == 3_000_000
            assert len(set(data)) == 1
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.communicate()
    data = blobs.read_bytes("jobs/j/blob")
    assert (len(data), len(set(data))) == (3_000_000, 1)
    assert blobs.list() == ["jobs/j/blob"]  # an unfinished write is not listed


def test_threads_may_write_the_same_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    threads = [threading.Thread(target=blobs.write_bytes, args=("x", bytes([i]) * 10_000)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(blobs.read_bytes("x"))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_job_has_its_places() -> None:
    paths = JobPaths("digits-1")
    assert [paths.rendezvous, paths.data, paths.model, paths.logs] == [
        "jobs/digits-1/rendezvous.json",
        "jobs/digits-1/data",
        "jobs/digits-1/model",
        "jobs/digits-1/logs",
    ]


@pytest.mark.parametrize("job_id", ["", "-a", "A", "a_b", "a/b", "..", "a\n", "x" * 64])
def test_other_job_ids_are_refused(job_id: str) -> None:
    assert JobPaths("x" * 63).root
    with pytest.raises(InputError, match="job id"):
        JobPaths(job_id)


def test_a_blob_is_swapped_only_where_it_is_as_it_was_read(blobs: Blobs) -> None:
    assert not blobs.swap("a/b", b"0", b"1"), "it is not there"
    assert blobs.swap("a/b", None, b"1")
    assert not blobs.swap("a/b", None, b"2"), "it is there"
    assert not blobs.swap("a/b", b"0", b"2")
    assert blobs.read_bytes("a/b") == b"1"
    assert blobs.swap("a/b", b"1", b"2")
    assert blobs.read_bytes("a/b") == b"2"
    blobs.remove("a/b")
    assert not blobs.swap("a/b", b"2", b"3"), "it was removed"
    assert blobs.list() == []


@pytest.mark.parametrize("old", [None, b"0"])
def test_of_many_that_swap_the_same_content_at_once_one_does(blobs: Blobs, old: bytes | None) -> None:
    if old is not None:
        blobs.write_bytes("a", old)
    begin = threading.Barrier(8)

    def swap(number: int) -> bool:
        begin.wait()
        return blobs.swap("a", old, b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(swap, range(1, 9)))
    assert sum(done) == 1
    assert blobs.read_bytes("a") == b"%d" % (1 + done.index(True))


def test_a_conditional_write_between_the_read_and_the_write_of_another_is_not_overwritten(
    bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = open_blobs(Settings(blob_url=f"{bucket_url}/{uuid.uuid4().hex}"))
    for old in (None, b"1"):
        put = blobs._fs.call_s3

        def overtaken(*names: object, put: Any = put, **more: object) -> Any:
            put(*names, **more | {"Body": b"1" if more["Body"] == b"mine" else b"2"})
            return put(*names, **more)

        with monkeypatch.context() as patch:
            patch.setattr(blobs._fs, "call_s3", overtaken)
            assert not blobs.swap("a", old, b"mine" if old is None else b"mine too")
        assert blobs.read_bytes("a") == (b"1" if old is None else b"2")
