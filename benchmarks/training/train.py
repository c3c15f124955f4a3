"""Two nodes of one thread each beside the library that one would take on one machine, with two threads, on the same data.

The real thing: processes, servers, messages. Both sides train to the same held-out quality, judged by the same function; the
mark is the best that the library comes to, but for a little. Where the marks lie is found out first, in a bare
loop, whose model a bulk-synchronous job ends with bit for bit; `train-mf` and `train-lda` measure that loop alone.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.training import train_lda_engine, train_mf_engine, train_mlr


def run(scratch: Path) -> Iterator[Figure]:
    """Measure `mlr`, `mf` and `lda`, each where its peer is installed; yield each figure when it is there."""
    for name, measure in (("mlr", train_mlr.run), ("mf", train_mf_engine.run), ("lda", train_lda_engine.run)):
        yield from measure(scratch / name)
