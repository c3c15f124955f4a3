"""Part `rotation`: what it costs to rotate blocks through the engine, beside a bare loop that rotates them in memory.

Both have the same kernels on the same data, with as many threads as the engine has nodes of one thread. The bare loop
moves nothing: its executors change one table in place, and wait for each other after each group. What a group costs
through the engine hardly depends on the number of tokens: the figure says it in milliseconds, for jobs of other sizes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.litz.corpus import LONG, lda_job
from proteus_spot.benchmarks.pictures import panels, write
from proteus_spot.benchmarks.training.bare_rotation import bare_rotation
from proteus_spot.benchmarks.training.through_engine import NODES, through_engine
from proteus_spot.psengine.apps.lda import ModelParallelLda
from proteus_spot.psengine.apps.registry import resolve

_ROUNDS = 3
_AIM = 1.06


def run(
    scratch: Path,
    picture: Path | None = None,
    n_documents: int = 50_000,
    topics: int = 400,
    passes: int = 4,
    rounds: int = _ROUNDS,
) -> Iterator[Figure]:
    """Measure; engine and bare loop alternate. Raises RuntimeError if they come to different counts."""
    threads = len(NODES)
    job = lda_job(n_documents, topics, threads, "model", LONG)
    app = resolve("lda", job.params)
    assert isinstance(app, ModelParallelLda)
    groups = 1 + passes * threads
    ours: list[list[float]] = []
    bare: list[list[float]] = []
    for number in range(rounds):
        loop = bare_rotation(app, [app.prepare(part) for part in job.parts], threads)
        at = list(islice(((one.seconds, one.tables) for one in loop), groups))
        bare.append([seconds - at[0][0] for seconds, _ in at[threads::threads]])
        directory = scratch / str(number)
        result, model = through_engine(directory, "lda", job.params, job.parts, job.heldout, groups)
        ends = np.cumsum(result["seconds_by_clock"])
        ours.append((ends[threads::threads] - ends[0]).tolist())
        if not np.array_equal(model["word_topic"], at[-1][1]["word_topic"]):
            raise RuntimeError("the engine came to other counts than the bare loop")
        shutil.rmtree(directory)
        click.echo(f"rotation, run {number + 1} of {rounds}: {ours[-1][-1]:.2f} s, bare {bare[-1][-1]:.2f} s", err=True)
    group_s, bare_s = (np.median([run[-1] for run in runs]) / (passes * threads) for runs in (ours, bare))
    note = f"a group takes {1000 * group_s:.0f} ms, {1000 * (group_s - bare_s):.1f} ms more than in the bare loop"
    yield figure(
        "litz",
        f"{passes} passes of lda, {job.params['n_tokens']:,} tokens, {topics} topics, {threads} executors that rotate",
        "s",
        [seconds[-1] for seconds in ours],
        [seconds[-1] for seconds in bare],
        f"a bare rotation loop, {threads} threads",
        f"{note}; both come to the same counts",
        most=_AIM,
    )
    if picture is not None:
        canvas, (axis,) = panels((6.0, 3.0), 1)
        for name, found in (("through the engine", ours), ("bare loop", bare)):
            axis.plot(range(1, passes + 1), np.median(found, axis=0), label=name)
        axis.set_title("rotation of blocks of words: seconds after each pass", fontsize=8)
        axis.set_xlabel("pass", fontsize=7)
        axis.legend(fontsize=7)
        write(canvas, picture)
