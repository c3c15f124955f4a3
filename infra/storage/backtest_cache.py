"""Results of finished backtest cells on disk, by the digest of their inputs; an interrupted backtest continues."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.eviction_arrays import EvictionArrays
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.price_arrays import Markets
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.runner import Outcomes
from proteus_spot.bidding.backtest.schemes.scheme_registry import Scheme
from proteus_spot.bidding.jit import source_digest
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.infra.files import write_whole

_ENDING = ".npy"
#: Digest of the sources as this process has loaded them; edits made meanwhile do not affect it.
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
    """Return the digest of all inputs of a simulation, the simulator's sources included.

    `what` names the kind of simulation: schemes, or the bound.
    """
    sha = hashlib.sha256()
    for part in (_VERSION, what, scheme, setting, reference):
        sha.update(f"{part!r}\n".encode())
    for values in _arrays((markets, table, starts_s)):
        sha.update(f"{values.dtype.descr} {values.shape}\n".encode())
        sha.update(values.tobytes())
    return sha.hexdigest()[:32]


def _arrays(values: Any) -> Iterator[NDArray[Any]]:
    """Yield every array of nested tuples; a number counts as an array."""
    if isinstance(values, tuple):
        for entry in values:
            yield from _arrays(entry)
    else:
        yield np.ascontiguousarray(values)


class KeptCells:
    """The rows of finished cells, one file per cell."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, key: str, shape: tuple[int, int]) -> Int64s | None:
        """Return the rows under `key`; None if absent, damaged or of another shape."""
        try:
            rows = np.load(self._file(key), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if not isinstance(rows, np.ndarray) or rows.shape != shape or rows.dtype != np.int64:
            return None
        found: Int64s = rows
        return found

    def put(self, key: str, outcomes: Outcomes) -> None:
        """Store the rows of a cell atomically."""
        self.directory.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        np.save(data, outcomes.rows, allow_pickle=False)
        write_whole(self._file(key), data.getvalue())

    def forget(self, keys: list[str]) -> None:
        """Remove these cells, and their directories if those are empty then."""
        for key in keys:
            self._file(key).unlink(missing_ok=True)
        for directory in (self.directory, self.directory.parent):
            try:
                directory.rmdir()
            except OSError:
                return

    def _file(self, key: str) -> Path:
        return self.directory / f"{key}{_ENDING}"
