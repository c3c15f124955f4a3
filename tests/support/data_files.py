"""Data files, written and read."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.example_table import Examples, examples
from proteus_spot.infra.datasets.prepare import check_data
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.csr import Csr


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(source: str) -> Examples:
    return examples(source, read_data(source))


def dense(of: Examples) -> list[list[float]]:
    x = of.x.dense() if isinstance(of.x, Csr) else of.x
    assert x.dtype == np.float32
    return x.tolist()


def refused(source: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check_data(source, 1)
    assert source in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(source)
