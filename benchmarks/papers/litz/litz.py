"""Benchmark `litz`: the sentences of section 4 of the paper (Litz, 2017), each measured by one part.

A part is a module with `run(scratch, picture)`, which yields figures; `picture` is the target of its picture, or None.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from proteus_spot.benchmarks.figure import Figure

#: {part: its module}, in the order of the paper.
PARTS = MappingProxyType(
    {
        "model-parallel": "proteus_spot.benchmarks.papers.litz.model_parallel",
        "over-decomposition": "proteus_spot.benchmarks.papers.litz.over_decomposition",
        "rotation": "proteus_spot.benchmarks.papers.litz.rotation",
        "scale-out": "proteus_spot.benchmarks.papers.litz.scale_out",
        "scale-in": "proteus_spot.benchmarks.papers.litz.scale_in",
        "memory": "proteus_spot.benchmarks.papers.litz.memory",
    }
)


def run(scratch: Path, picture: Path | None = None, parts: Sequence[str] = ()) -> Iterator[Figure]:
    """Measure; yield each figure once it is measured.

    Parameters
    ----------
    picture : target of the pictures; the name of the part is added to its name.
    parts : names of the parts to measure; none: all.
    """
    for part in parts or PARTS:
        target = None if picture is None else picture.with_stem(f"{picture.stem}-{part}")
        yield from importlib.import_module(PARTS[part]).run(scratch / part, target)
