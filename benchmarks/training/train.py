"""Benchmark `train`: two nodes of one thread each beside a library for one machine with two threads, on the same data.

The engine runs completely: processes, servers, messages. Both sides train to the same held-out quality, measured by the
same function; the mark is slightly worse than the library's best. The number of clocks to the mark is found first, in a
bare loop, whose model a bulk-synchronous job reproduces bit for bit; `train-mf` and `train-lda` measure that loop only.
"""

from collections.abc import Iterator
from pathlib import Path

from proteus_spot.benchmarks.figure import Figure
from proteus_spot.benchmarks.training import train_lda_engine, train_mf_engine, train_mlr


def run(scratch: Path) -> Iterator[Figure]:
    """Measure `mlr`, `mf` and `lda`, each if its peer is installed; yield each figure once it is measured."""
    for name, measure in (("mlr", train_mlr.run), ("mf", train_mf_engine.run), ("lda", train_lda_engine.run)):
        yield from measure(scratch / name)
