"""Part `memory`: the memory of all nodes over the passes of `lda` (Figs. 1 and 11, section 4.3 of the paper).

The kernels are real. Counts turn sparse as the topics settle; servers hold rows in the smaller form. Beside it stands
the same job with `scale_in` off, whose servers hold full arrays. Memory is that of arrays (see
`psengine.telemetry.memory_use`), hence the same on any machine, however busy.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.litz.corpus import drawn_set
from proteus_spot.benchmarks.pictures import panels, write
from proteus_spot.benchmarks.training.through_engine import through_engine
from proteus_spot.infra.datasets.documents import DocumentSet

#: Fall of the memory by the tenth pass in the paper: of all nodes, and of the servers.
PAPER_ALL, PAPER_SERVERS = 0.23, 0.80
_PARTITIONS, _SHARDS = 4, 8
_MB = 1e6
_KINDS = ("tables", "states", "input")
#: {kind: (passes,) memory of all nodes, in MB}
MemoryByPass = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Corpus:
    """Documents drawn from the model of LDA, and the topics that are fitted to them.

    Attributes
    ----------
    length : mean number of tokens of a document.
    drawn_topics, topics : numbers of topics that the documents are drawn from, and that are fitted.
    """

    n_documents: int = 8000
    n_words: int = 4000
    length: float = 160.0
    drawn_topics: int = 500
    topics: int = 500
    passes: int = 10

    def set(self) -> DocumentSet:
        """Return the documents, cut into partitions."""
        return drawn_set(self.n_documents, self.n_words, self.drawn_topics, self.length, _PARTITIONS)


def run(scratch: Path, picture: Path | None = None, corpus: Corpus = Corpus()) -> Iterator[Figure]:
    """Measure: once, since memory does not vary."""
    sets = corpus.set()
    sparse, full = (_trained(scratch / f"memory-{scale_in}", corpus, sets, scale_in) for scale_in in (True, False))
    yield from figures(
        sparse, full, f"{sets.sizes['n_tokens']:,} tokens, {corpus.n_words:,} words, {corpus.topics} topics"
    )
    if picture is not None:
        _draw(sparse, full, picture)


def figures(sparse: MemoryByPass, full: MemoryByPass, sizes: str) -> Iterator[Figure]:
    """Yield the memory in the last pass beside that in the first one, and beside that of full arrays."""
    for whose, kinds, paper in (("servers", _KINDS[:1], PAPER_SERVERS), ("all nodes", _KINDS, PAPER_ALL)):
        total, beside = (np.sum([by_kind[kind] for kind in kinds], axis=0) for by_kind in (sparse, full))
        last, first = float(total[-1]), float(total[0])
        fall = 1 - last / first
        note = f"{abs(fall):.0%} {'less' if fall > 0 else 'more'}; the paper: {paper:.0%} less; {sizes}"
        what = f"lda, memory of {whose} in pass {len(total)}"
        yield figure("litz", what, "MB", [last], [first], "in the first pass", note, most=1 - paper)
        yield figure("litz", what, "MB", [last], [float(beside[-1])], "with full arrays")


def _trained(directory: Path, corpus: Corpus, sets: DocumentSet, scale_in: bool) -> MemoryByPass:
    params = {**sets.sizes, "k": corpus.topics, "parallel": "model", "start_topics": corpus.topics}
    clocks = corpus.passes * _PARTITIONS + 1
    result, _ = through_engine(
        directory, "lda", params, sets.parts(0), sets.heldout(), clocks, n_shards=_SHARDS, scale_in=scale_in
    )
    shutil.rmtree(directory)
    return by_pass(result["memory_by_clock"])


def by_pass(memory_by_clock: Sequence[Sequence[int]]) -> MemoryByPass:
    """Return the memory of all nodes by kind, in MB: the mean over the clocks of each pass that have an entry.

    The first clock, in which every token gets a topic, belongs to none.
    """
    entries = np.array([entry[: 1 + len(_KINDS)] for entry in memory_by_clock if entry[0] > 1])
    number = (entries[:, 0] - 2) // _PARTITIONS
    n_entries = np.bincount(number)
    return {
        kind: np.bincount(number, weights=entries[:, column]) / n_entries / _MB
        for column, kind in enumerate(_KINDS, start=1)
    }


def _draw(sparse: MemoryByPass, full: MemoryByPass, target: Path) -> None:
    canvas, axes = panels((6.0, 5.2), 2)
    passes = np.arange(1, len(sparse["tables"]) + 1)
    axes[0].stackplot(passes, *(sparse[kind] for kind in _KINDS), labels=_KINDS, alpha=0.7)
    axes[0].plot(passes, sum(full[kind] for kind in _KINDS), ":", color="black", label="all, with full arrays")
    axes[0].set_title("lda: memory of all nodes, MB", fontsize=8)
    axes[1].plot(passes, sparse["tables"], "o-", label="sparse rows where they are smaller")
    axes[1].plot(passes, full["tables"], ":", color="black", label="full arrays")
    axes[1].set_title("lda: memory of the servers, MB", fontsize=8)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.set_xlabel("pass", fontsize=7)
        axis.legend(fontsize=7)
    write(canvas, target)
