"""Part `over-decomposition`: what it costs to have more executors than cores (section 4.1.2 of the paper).

The same examples are cut into 1, 2, 4, 8 and 16 executors a core; nodes, model and number of passes stay. A pass of the
paper's jobs takes minutes. Here it takes a second or two, so that what a task costs beside its kernel counts for more;
each figure says that cost, too, in milliseconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import click
import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.litz.corpus import LONG, lda_job
from proteus_spot.benchmarks.pictures import panels, write
from proteus_spot.benchmarks.training.generated_examples import generated_examples
from proteus_spot.benchmarks.training.through_engine import NODES, Arrays, through_engine

#: Executors a core; the first is what the others are compared with.
EXECUTORS = (1, 2, 4, 8, 16)
#: {executors a core: how much longer a clock took in the paper}, of MLR and of LDA.
PAPER = {"mlr": {4: 1.0, 16: 1.11}, "lda": {4: 1.0, 16: 1.23}}
#: {executors a core: how much longer a pass may take}: with 4 a little more than in the paper, with 16 as there.
AIMS: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {app: MappingProxyType(took | {4: 1.02}) for app, took in PAPER.items()}
)
_ROUNDS = 3


@dataclass(frozen=True)
class Decomposition:
    """An application and its data.

    Attributes
    ----------
    what : its size.
    passes : number of passes over the data that are timed; the first clock is not.
    groups : returns the number of groups of a pass, in which each executor has a task, for a number of executors.
    cut : returns the parameters, the partitions, the held-out arrays and the clocks for a number of executors.
    """

    app: str
    what: str
    passes: int
    groups: Callable[[int], int]
    cut: Callable[[int], tuple[Mapping[str, Any], Sequence[Arrays], Arrays, int]]


def mlr_decomposition(n_examples: int = 60_000, clocks: int = 5, features: int = 2000) -> Decomposition:
    """Return `mlr` with one gradient step a clock: its work does not depend on the number of executors."""
    n_held = n_examples // 10
    x, y = generated_examples(n_examples + n_held, 784, 10, seed=3)
    held: Arrays = {"x": x[:n_held], "y": y[:n_held]}

    def cut(executors: int) -> tuple[Mapping[str, Any], Sequence[Arrays], Arrays, int]:
        rows = np.array_split(np.arange(n_held, n_held + n_examples), executors)
        parts: list[Arrays] = [{"x": x[mine], "y": y[mine]} for mine in rows]
        sizes = {"n_inputs": 784, "n_classes": 10, "n_examples": n_examples, "features": features}
        return {**sizes, "step": 0.1}, parts, held, clocks + 1

    what = f"{n_examples:,} examples of 784 inputs, {features:,} features"
    return Decomposition("mlr", what, clocks, lambda executors: 1, cut)


def lda_decomposition(n_documents: int = 50_000, topics: int = 400, passes: int = 2) -> Decomposition:
    """Return model-parallel `lda`: with twice the executors a pass has twice the blocks and twice the clocks."""

    def cut(executors: int) -> tuple[Mapping[str, Any], Sequence[Arrays], Arrays, int]:
        job = lda_job(n_documents, topics, executors, "model", LONG)
        return job.params, job.parts, job.heldout, 1 + passes * executors

    what = f"{n_documents:,} documents of {LONG:g} tokens, {topics} topics"
    return Decomposition("lda", what, passes, lambda executors: executors, cut)


def run(
    scratch: Path,
    picture: Path | None = None,
    subjects: Sequence[Callable[[], Decomposition]] = (mlr_decomposition, lda_decomposition),
    executors: Sequence[int] = EXECUTORS,
    rounds: int = _ROUNDS,
) -> Iterator[Figure]:
    """Measure; the numbers of executors alternate."""
    found: dict[str, dict[int, list[float]]] = {}
    for make in subjects:
        subject = make()
        took = found[subject.app] = {number: [] for number in executors}
        kernels: dict[int, list[float]] = {number: [] for number in executors}
        for number in range(rounds):
            for a_core in executors:
                params, parts, held, clocks = subject.cut(a_core * len(NODES))
                directory = scratch / f"{subject.app}-{number}-{a_core}"
                result, _ = through_engine(directory, subject.app, params, parts, held, clocks)
                took[a_core].append(sum(result["seconds_by_clock"][1:]) / subject.passes)
                kernels[a_core].append(result["kernel_seconds"] / result["seconds"])
                shutil.rmtree(directory)
                run_of = f"run {number + 1} of {rounds}, {a_core} executors a core"
                click.echo(f"{subject.app}, {run_of}: {took[a_core][-1]:.3f} s a pass", err=True)
        for a_core in executors[1:]:
            paper = PAPER[subject.app].get(a_core)
            tasks = a_core * subject.groups(a_core * len(NODES))
            more_s = median(took[a_core]) - median(took[executors[0]])
            notes = [
                f"a core has {tasks} tasks in a pass, and each costs {1000 * more_s / tasks:.1f} ms more",
                f"kernels are {median(kernels[a_core]):.0%} of the job, else {median(kernels[executors[0]]):.0%}",
                *([] if paper is None else [f"the paper: {paper:g}"]),
            ]
            yield figure(
                "litz",
                f"a pass of {subject.app}, {subject.what}, {a_core} executors a core",
                "s",
                took[a_core],
                took[executors[0]],
                f"{executors[0]} a core",
                "; ".join(notes),
                most=AIMS[subject.app].get(a_core),
            )
    if picture is not None:
        _draw(found, picture)


def _draw(found: Mapping[str, Mapping[int, Sequence[float]]], target: Path) -> None:
    canvas, axes = panels((6.0, 2.6 * len(found)), len(found))
    for axis, (app, took) in zip(axes, found.items(), strict=True):
        numbers = list(took)
        base = float(np.median(took[numbers[0]]))
        axis.plot(numbers, [float(np.median(took[number])) / base for number in numbers], "o-", label="median")
        axis.fill_between(
            numbers,
            [min(took[number]) / base for number in numbers],
            [max(took[number]) / base for number in numbers],
            alpha=0.2,
        )
        axis.plot(list(PAPER[app]), list(PAPER[app].values()), "x", color="black", label="the paper")
        axis.set_xscale("log", base=2)
        axis.set_xticks(numbers, [str(number) for number in numbers])
        axis.set_title(f"{app}: time of a pass, with one executor a core as 1", fontsize=8)
        axis.set_xlabel("executors a core", fontsize=7)
        axis.legend(fontsize=7)
    write(canvas, target)
