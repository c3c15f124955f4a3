"""Benchmark `train-lda`: the `lda` kernel beside tomotopy, two threads each, to the same likelihood.

Documents, priors and number of topics are the same. Ours is the bare loop of `psengine.single_process` with the
partitions of a clock on two threads, or `bare_rotation`: the kernel, without servers.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.training.bare_rotation import bare_rotation
from proteus_spot.infra.datasets.documents import Documents, DocumentSet, drawn_documents
from proteus_spot.psengine.apps.lda import LatentDirichletAllocation, ModelParallelLda
from proteus_spot.psengine.apps.lda.model_parallel import BlockSampler
from proteus_spot.psengine.apps.lda.topic_model import TopicModel
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.single_process import initial

#: Six million tokens, about as many as UCI's Enron data set, and its vocabulary without rare words.
_DOCUMENTS, _WORDS, _TOPICS, _LENGTH = 30_000, 5000, 100, 200.0
_THREADS = 2
#: (topics, weight of topics in a document, passes of the peer, our parallelism). With 1000 topics, partitions that do
#: not see each other's changes take more than 60 passes to the mark; with 100 topics it makes no difference.
_CASES = ((100, 0.1, 20, "data"), (1000, 0.05, 40, "model"))
_BETA = 0.01
_MOST_PASSES = 60


def run(scratch: Path) -> list[Figure]:
    """Measure; no figures without tomotopy."""
    del scratch
    try:
        import tomotopy
    except ImportError:
        print("train-lda: pip install tomotopy to compare with it")
        return []
    words, offsets = drawn_documents(_DOCUMENTS, _WORDS, _TOPICS, _LENGTH, 0.02, 0.1, seed=7)
    documents = Documents(words, offsets, np.arange(_DOCUMENTS))
    figures = []
    for k, alpha, passes, parallel in _CASES:
        app = _application(len(words), k, alpha, parallel)
        _ours(app, documents, -np.inf, 1)
        beside_s, likelihood = _tomotopy(tomotopy, app, documents, passes)
        ours_s, taken = _ours(app, documents, likelihood, _MOST_PASSES)
        mark = f"to a joint log-likelihood of {likelihood:.3f} a token"
        what = f"lda, {len(words):,} tokens, {k} topics, {_THREADS} threads: {mark}"
        speed = f"{taken} passes; tokens/s {taken * len(words) / ours_s:,.0f} and {passes * len(words) / beside_s:,.0f}"
        figures.append(figure("train-lda", what, "s", [ours_s], [beside_s], f"tomotopy, {passes} passes", speed))
    return figures


def _application(n_tokens: int, k: int, alpha: float, parallel: str) -> TopicModel:
    sizes = {"n_words": _WORDS, "n_tokens": n_tokens, "n_partitions": _THREADS}
    made = resolve("lda", {**sizes, "k": k, "alpha": alpha, "beta": _BETA, "parallel": parallel})
    assert isinstance(made, TopicModel)
    return made


def _ours(app: TopicModel, documents: Documents, likelihood: float, most: int) -> tuple[float, int]:
    """Return the seconds until a likelihood is reached (evaluations left out), and the passes."""
    for passes, (took_s, found) in enumerate(islice(_passes(app, documents), most), 1):
        if found() >= likelihood:
            return took_s, passes
    raise RuntimeError(f"a joint log-likelihood of {likelihood:.3f} was not reached in {most} passes")


def _seconds(app: TopicModel, documents: Documents, passes: int) -> float:
    """Return the seconds of `passes`."""
    return next(islice(_passes(app, documents), passes - 1, None))[0]


def _passes(app: TopicModel, documents: Documents) -> Iterator[tuple[float, Callable[[], float]]]:
    """Yield after each pass the seconds up to then, and a function that returns the joint log-likelihood."""
    raw = list(DocumentSet(documents, documents, app.n_words, _THREADS).parts(0))
    if isinstance(app, ModelParallelLda):
        yield from _rotated_passes(app, raw)
        return
    assert isinstance(app, LatentDirichletAllocation)
    parts = [app.prepare(arrays) for arrays in raw]
    words = np.concatenate([arrays["words"] for arrays in raw])
    offsets = np.concatenate([[0], *(arrays["offsets"][1:] + arrays["token_start"] for arrays in raw)])
    tables: dict[str, Any] = {name: table.copy() for name, table in initial(app, 0).items()}
    took_s = 0.0
    with ThreadPoolExecutor(_THREADS) as pool:
        for clock in count(1):
            began = perf_counter()
            _step(app, parts, tables, clock, pool)
            took_s += perf_counter() - began
            if clock > 1:  # the first gives every token a topic
                yield took_s, lambda: app.joint_log_likelihood(words, offsets, tables["assignments"][:, 0])


def _rotated_passes(app: ModelParallelLda, raw: list[dict[str, Any]]) -> Iterator[tuple[float, Callable[[], float]]]:
    for at in bare_rotation(app, [app.prepare(arrays) for arrays in raw], _THREADS):
        if at.group > 1 and (at.group - 1) % len(raw) == 0:
            executors: list[BlockSampler] = list(at.executors)
            yield at.seconds, lambda executors=executors: _joint(app, raw, executors)  # type: ignore[misc]


def _joint(app: TopicModel, raw: list[dict[str, Any]], executors: list[BlockSampler]) -> float:
    """Return the joint log-likelihood of a model-parallel state; within a document the order of tokens is no matter."""
    words, topics, documents, first = [], [], [], 0
    for arrays, executor in zip(raw, executors, strict=True):
        for block, of_block in zip(executor.blocks, executor.snapshot().values(), strict=True):
            words.append(block.words)
            topics.append(of_block)
            documents.append(first + np.repeat(np.arange(len(block.starts) - 1), np.diff(block.starts)))
        first += len(arrays["offsets"]) - 1
    order = np.argsort(np.concatenate(documents), kind="stable")
    lengths = np.bincount(np.concatenate(documents), minlength=first)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return app.joint_log_likelihood(np.concatenate(words)[order], offsets, np.concatenate(topics)[order])


def _step(
    app: LatentDirichletAllocation, parts: list[Any], tables: dict[str, Any], clock: int, pool: ThreadPoolExecutor
) -> None:
    """Run a clock: all partitions read their rows before any is changed, as in `psengine.single_process`."""
    wanted = [app.rows(data, clock) for data in parts]

    def work(at: int) -> Any:
        mine = {name: table[wanted[at][name]] if name in wanted[at] else table for name, table in tables.items()}
        return app.run(parts[at], mine, clock).updates

    updates = list(pool.map(work, range(len(parts))))
    for rows, update in zip(wanted, updates, strict=True):
        for name, change in update.items():
            tables[name][rows.get(name, slice(None))] += change


def _tomotopy(tomotopy: Any, app: TopicModel, documents: Documents, passes: int) -> tuple[float, float]:
    """Return the seconds of `passes`, and our joint log-likelihood of the final state."""
    model = tomotopy.LDAModel(k=app.k, alpha=app.alpha, eta=app.beta, seed=1)
    for low, high in zip(documents.offsets, documents.offsets[1:], strict=False):
        model.add_doc([str(word) for word in documents.words[low:high]])
    model.optim_interval = 0
    model.train(0, workers=_THREADS)
    began = perf_counter()
    model.train(passes, workers=_THREADS)
    took_s = perf_counter() - began
    words = np.array([int(model.vocabs[word]) for document in model.docs for word in document.words], np.int32)
    topics = np.array([topic for document in model.docs for topic in document.topics])
    return took_s, app.joint_log_likelihood(words, documents.offsets, topics + 1)
