"""Finished cells of a backtest on disk, each under the digest of all that decides it: an interrupted one goes on."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidding.backtest.eviction_arrays import EvictionArrays
from bidding.backtest.parameters import JobParameters
from bidding.backtest.price_arrays import Markets
from bidding.backtest.reference_cluster import Reference
from bidding.backtest.runner import Outcomes
from bidding.backtest.schemes.registry import Scheme
from bidding.jit import source_digest
from bidding.market.traces import Int64s
from infra.files import write_whole

_ENDING = ".npy"
#: Of the sources as this process has loaded them; whoever edits them meanwhile does not change what is computed here.
_VERSION = source_digest()


def cell_key(
    what: str,
    markets: Markets,
    table: EvictionArrays,
    scheme: Scheme,
    setting: JobParameters,
    reference: Reference,
    starts_s: Int64s,
) -> str:
    """Return the digest of what a simulation is a function of, the simulator's own sources included.

    `what` is simulated: schemes, or the bound.
    """
    sha = hashlib.sha256()
    for part in (_VERSION, what, scheme, setting, reference):
        sha.update(f"{part!r}\n".encode())
    for values in _arrays((markets, table, starts_s)):
        sha.update(f"{values.dtype.descr} {values.shape}\n".encode())
        sha.update(values.tobytes())
    return sha.hexdigest()[:32]


def _arrays(of: Any) -> Iterator[NDArray[Any]]:
    """Give every array of tuples within tuples; a number counts as one."""
    if isinstance(of, tuple):
        for part in of:
            yield from _arrays(part)
    else:
        yield np.ascontiguousarray(of)


class KeptCells:
    """The rows of finished cells, a file each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, key: str, shape: tuple[int, int]) -> Int64s | None:
        """Return the rows under `key`; None where there are none, or none of this shape: a damaged file is no cell."""
        try:
            rows = np.load(self._file(key), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if not isinstance(rows, np.ndarray) or rows.shape != shape or rows.dtype != np.int64:
            return None
        found: Int64s = rows
        return found

    def put(self, key: str, outcomes: Outcomes) -> None:
        """Keep the rows of a cell, whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        np.save(data, outcomes.rows, allow_pickle=False)
        write_whole(self._file(key), data.getvalue())

    def forget(self, keys: list[str]) -> None:
        """Take these cells away, and the directories that were made for them if nothing else is in them."""
        for key in keys:
            self._file(key).unlink(missing_ok=True)
        for directory in (self.directory, self.directory.parent):
            try:
                directory.rmdir()
            except OSError:
                return

    def _file(self, key: str) -> Path:
        return self.directory / f"{key}{_ENDING}"
