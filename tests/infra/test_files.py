"""Files that a user names: what a failed download left in place of one is named, whoever reads it."""

import gzip
from pathlib import Path

import pytest

from proteus_spot.infra.datasets.kinds import KINDS
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import read_chunks, read_text, read_whole
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.eviction_model_files import read_model
from proteus_spot.infra.structured_text import read_json

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:df21\nsize 175385569\n"
LEFT = {
    "LFS": (POINTER, "is a Git LFS pointer, not the file; run git lfs pull"),
    "annex": (b"/annex/objects/SHA256E-s12--ab.csv\n", "is a git-annex pointer"),
    "page": (b'\n<!DOCTYPE html>\n<html lang="en">\n', "is a web page, not the file; fetch the file again"),
    "page in XML": (b'<?xml version="1.0"?>\n<!-- x -->\n<html xmlns="x">', "is a web page"),
    "error of S3": (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>',
        "error of a store such as S3",
    ),
    "not found": (b"404: Not Found\n", "is the answer 'not found' of a server"),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_a_download_left_is_named_by_every_reader(tmp_path: Path, what: str) -> None:
    data, says = LEFT[what]
    source = str(tmp_path / "a.csv")
    readers = [read_whole, read_text, lambda name: list(read_chunks(name)), read_catalog, read_json]
    readers += [lambda name, kind=kind: KINDS[kind](name, 1, None) for kind in KINDS]
    for content in (data, gzip.compress(data)):
        Path(source).write_bytes(content)
        for reader in readers if content is data else readers[5:]:
            with pytest.raises(InputError, match=says) as caught:
                reader(source)
            assert "\n" not in str(caught.value)
    for name in ("a.npz", "train-images-idx3-ubyte"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=says):
            KINDS["examples"](str(tmp_path / name), 1, None)
    with pytest.raises(InputError, match=says):
        read_model(str(tmp_path / "a.npz"))


def test_a_file_that_speaks_of_pages_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x,<html>\n1,2\n")
    assert read_whole(tmp_path / "a.txt") == b"x,<html>\n1,2\n"
