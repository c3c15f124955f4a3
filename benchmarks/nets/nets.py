"""The benchmark `nets`; a part is a module with `run(scratch)`, which yields figures."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from proteus_spot.benchmarks.figure import Figure
from proteus_spot.infra.errors import InputError

#: {part: its module}.
PARTS = MappingProxyType(
    {
        "same": "proteus_spot.benchmarks.nets.same",
        "overhead": "proteus_spot.benchmarks.nets.overhead",
        "bytes": "proteus_spot.benchmarks.nets.traffic",
        "scale": "proteus_spot.benchmarks.nets.scale",
        "links": "proteus_spot.benchmarks.nets.links",
        "large": "proteus_spot.benchmarks.nets.large",
        "kills": "proteus_spot.benchmarks.nets.kills",
        "quality": "proteus_spot.benchmarks.nets.quality",
    }
)


def run(scratch: Path, parts: Sequence[str] = ()) -> Iterator[Figure]:
    """Measure; yield each figure once it is measured. `parts`: names of the parts to measure; none: all."""
    if find_spec("torch") is None:
        raise InputError("bench nets: needs torch, which is not installed: make torch")
    for part in parts or PARTS:
        yield from importlib.import_module(PARTS[part]).run(scratch / part)
