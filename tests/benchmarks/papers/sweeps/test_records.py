"""Files of recorded trials."""

import json
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.records import read_record, write_record
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import npz_bytes
from tests.benchmarks.papers.sweeps.simulation.test_record import record


def test_a_record_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    before = record(values=np.array([[0.1 + 0.2, np.nan, 1.0], [3.0, 1.0, 0.5]]))
    write_record(tmp_path / "a.npz", before)
    after = read_record(tmp_path / "a.npz")
    assert after.header() == before.header()
    assert {name: array.tobytes() for name, array in after.arrays().items()} == {
        name: array.tobytes() for name, array in before.arrays().items()
    }


def text(header: object) -> np.ndarray:
    return np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)


def test_what_is_no_record_gets_one_line(tmp_path: Path) -> None:
    header, arrays = record().header(), record().arrays()
    path = tmp_path / "a.npz"
    for content, message in (
        (b"PK", "is not an .npz file"),
        (npz_bytes(arrays), "no 'header'"),
        (npz_bytes({"header": np.frombuffer(b"{", dtype=np.uint8), **arrays}), "is not a record"),
        (npz_bytes({"header": np.frombuffer(b"[]", dtype=np.uint8), **arrays}), "is not a record"),
        (npz_bytes({"header": text(header | {"direction": "up"}), **arrays}), "'up' is not a valid Direction"),
        (npz_bytes({"header": np.frombuffer(b"{}", dtype=np.uint8), **arrays}), "'application'"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message) as error:
            read_record(path)
        assert "\n" not in str(error.value)
