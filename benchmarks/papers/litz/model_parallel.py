"""Part `model-parallel`: the likelihood of `lda` by pass and by second, model- and data-parallel.

The likelihood is that of each token of the training set when it is drawn, given all others. Data-parallel, partitions
do not see in a pass what the others change; the more partitions, the more passes it takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.litz.corpus import lda_job
from proteus_spot.benchmarks.pictures import panels, write
from proteus_spot.benchmarks.training.through_engine import through_engine

_ROUNDS = 3
_PARALLEL = ("model", "data")


@dataclass(frozen=True)
class LikelihoodCurve:
    """One training.

    Attributes
    ----------
    log_likelihood, seconds : float64 of shape (passes,)
        Mean log-likelihood of a token in each pass, and the seconds at its end.
    perplexity : of the held-out documents at the end.
    """

    log_likelihood: NDArray[np.float64]
    seconds: NDArray[np.float64]
    perplexity: float

    def reaches(self, mark: float) -> tuple[int, float]:
        """Return the first pass, from 1, with a likelihood of at least `mark`, and the seconds at its end."""
        at = int(np.argmax(self.log_likelihood >= mark))
        return at + 1, float(self.seconds[at])


def run(
    scratch: Path,
    picture: Path | None = None,
    n_documents: int = 10_000,
    topics: int = 400,
    n_partitions: int = 8,
    passes: int = 40,
    rounds: int = _ROUNDS,
) -> Iterator[Figure]:
    """Measure; the two ways alternate."""
    found: dict[str, list[LikelihoodCurve]] = {parallel: [] for parallel in _PARALLEL}
    for number in range(rounds):
        for parallel, curves in found.items():
            directory = scratch / f"{parallel}-{number}"
            curves.append(_trained(directory, parallel, n_documents, topics, n_partitions, passes))
            shutil.rmtree(directory)
            last = f"{curves[-1].log_likelihood[-1]:.4f} a token after {curves[-1].seconds[-1]:.1f} s"
            click.echo(f"lda, {parallel}-parallel, run {number + 1} of {rounds}: log-likelihood {last}", err=True)
    mark = min(curve.log_likelihood[-2:].min() for curves in found.values() for curve in curves)
    reached = {parallel: [curve.reaches(mark) for curve in curves] for parallel, curves in found.items()}
    what = f"lda, {n_documents:,} documents, {topics} topics, {n_partitions} partitions"
    note = f"mark: a log-likelihood of {mark:.4f} a token; {passes} passes"
    for unit, which in (("passes", 0), ("s", 1)):
        ours, beside = ([float(one[which]) for one in reached[parallel]] for parallel in _PARALLEL)
        yield figure("litz", f"{what}: to one likelihood", unit, ours, beside, "data-parallel", note)
    ours, beside = ([curve.perplexity for curve in found[parallel]] for parallel in _PARALLEL)
    yield figure("litz", f"{what}: held-out perplexity after {passes} passes", "", ours, beside, "data-parallel")
    if picture is not None:
        _draw(found, f"{what}; the first of {rounds} runs", picture)


def _trained(
    directory: Path, parallel: str, n_documents: int, topics: int, n_partitions: int, passes: int
) -> LikelihoodCurve:
    job = lda_job(n_documents, topics, n_partitions, parallel)
    clocks_of_pass = n_partitions if parallel == "model" else 1
    clocks = 1 + passes * clocks_of_pass
    result, _ = through_engine(directory, "lda", job.params, job.parts, job.heldout, clocks)
    losses = np.array([loss for _, loss in result["losses"]])[1:].reshape(passes, clocks_of_pass)
    ends = np.cumsum(result["seconds_by_clock"])[clocks_of_pass::clocks_of_pass]
    return LikelihoodCurve(-losses.mean(axis=1), ends, result["metrics"]["perplexity"])


def _draw(found: Mapping[str, list[LikelihoodCurve]], note: str, target: Path) -> None:
    canvas, axes = panels((6.5, 6.0), 2)
    for parallel, curves in found.items():
        curve = curves[0]
        passes = np.arange(1, len(curve.seconds) + 1)
        for axis, abscissa in zip(axes, (passes, curve.seconds), strict=True):
            axis.plot(abscissa, curve.log_likelihood, label=f"{parallel}-parallel")
    for axis, unit in zip(axes, ("pass", "second"), strict=True):
        axis.set_title(f"log-likelihood of a token by {unit}", fontsize=8)
        axis.set_xlabel(unit, fontsize=7)
        axis.legend(fontsize=7)
    canvas.supxlabel(note, fontsize=7)
    write(canvas, target)
