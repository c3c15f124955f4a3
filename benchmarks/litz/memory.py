"""Part `memory`: the memory of all nodes over the passes of `lda` (Figs. 1 and 11, section 4.3 of the paper).

The kernels are real. Counts turn sparse as the topics settle; servers hold rows in the smaller form. Beside it stands
the same job with `scale_in` off, whose servers hold full arrays. Memory is that of arrays (see
`psengine.telemetry.memory_use`), hence the same on any machine, however busy.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import Figure, figure
from benchmarks.pictures import panels, write
from benchmarks.training.through_engine import through_engine
from infra.datasets.documents import Documents, DocumentSet, drawn_documents

#: Fall of the memory by the tenth pass in the paper: of all nodes, and of the servers.
PAPER_ALL, PAPER_SERVERS = 0.23, 0.80
_PARTITIONS, _SHARDS = 4, 8
_MB = 1e6
_KINDS = ("tables", "states", "input")


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
        words, offsets = drawn_documents(
            self.n_documents, self.n_words, self.drawn_topics, self.length, 0.02, 0.1, seed=11
        )
        documents = Documents(words, offsets, np.arange(self.n_documents))
        return DocumentSet(documents, documents, self.n_words, _PARTITIONS)


def run(scratch: Path, picture: Path | None = None, corpus: Corpus | None = None) -> Iterator[Figure]:
    """Measure: once, since memory does not vary."""
    corpus = corpus or Corpus()
    by_pass = {scale_in: _memory(scratch / f"memory-{scale_in}", corpus, scale_in) for scale_in in (True, False)}
    sparse, full = by_pass[True], by_pass[False]
    tokens = f"{corpus.set().sizes['n_tokens']:,} tokens, {corpus.n_words:,} words, {corpus.topics} topics"
    for what, kinds, paper in (("servers", _KINDS[:1], PAPER_SERVERS), ("all nodes", _KINDS, PAPER_ALL)):
        total, beside = (sum(by_kind[kind] for kind in kinds) for by_kind in (sparse, full))
        last, first = float(total[-1]), float(total[0])
        fall = 1 - last / first
        note = f"{abs(fall):.0%} {'less' if fall > 0 else 'more'}; the paper: {paper:.0%} less; {tokens}"
        what = f"lda, memory of {what} in pass {corpus.passes}"
        yield figure("litz", what, "MB", [last], [first], "in the first pass", note)
        yield figure("litz", what, "MB", [last], [float(beside[-1])], "with full arrays")
    if picture is not None:
        _draw(sparse, full, picture)


def _memory(directory: Path, corpus: Corpus, scale_in: bool) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the memory of all nodes by kind, in MB, in the mean of the clocks of each pass."""
    sets = corpus.set()
    params = {**sets.sizes, "k": corpus.topics, "parallel": "model", "start_topics": corpus.topics}
    clocks = corpus.passes * _PARTITIONS + 1  # the first gives every token a topic
    result, _ = through_engine(
        directory, "lda", params, sets.parts(0), sets.heldout(), clocks, n_shards=_SHARDS, scale_in=scale_in
    )
    shutil.rmtree(directory)
    after = np.array([entry[1:4] for entry in result["memory_by_clock"] if entry[0] > 1])
    by_pass = after.reshape(corpus.passes, _PARTITIONS, len(_KINDS)).mean(axis=1) / _MB
    return dict(zip(_KINDS, by_pass.T, strict=True))


def _draw(sparse: Mapping[str, Any], full: Mapping[str, Any], target: Path) -> None:
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
