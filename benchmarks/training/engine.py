"""Benchmark `engine`: a clock of `mlr` on the digits beside the bare kernel, on two nodes of one thread each.

The first limit is the same kernel over the same partitions in a bare loop, in two processes of one thread each that
never communicate, including the sums of a clock's updates: no training on two cores can be faster with this kernel. In
the second limit each process waits for the other at the end of a clock: bulk-synchronous training takes as long as the
slower one, clock by clock, with any transport. The other costs of a clock do not grow with its examples, so there are
two sizes: the digits, whose clocks are short, and ten times as many.
"""

from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.training.bare_processes import bare_seconds
from proteus_spot.benchmarks.training.through_engine import Arrays, through_engine
from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, part_name
from proteus_spot.infra.urls import file_url

#: As in `proteus run`.
FEATURES, PARTITIONS, SHARDS = 8192, 16, 4
#: (number of copies of the digits, clocks) of each size.
LOADS = ((1, 60), (10, 15))
_ROUNDS = 7


def run(scratch: Path, loads: tuple[tuple[int, int], ...] = LOADS) -> list[Figure]:
    """Measure; engine and bare loops alternate."""
    return [of_load for times, clocks in loads for of_load in _of(scratch / f"times-{times}", times, clocks)]


def _of(scratch: Path, times: int, clocks: int) -> list[Figure]:
    blobs = Blobs(file_url(scratch / "digits"))
    data = prepare(blobs, "digits", "digits", PARTITIONS, 0)
    source = Blobs(data.data_url)
    parts = [_repeated(source.read_npz(part_name(part)), times) for part in range(PARTITIONS)]
    n_examples = sum(len(part["y"]) for part in parts)
    params = {**data.sizes, "n_examples": n_examples, "features": FEATURES, "gamma": 0.1, "step": 4.0}
    ours, bare, in_step, outside = [], [], [], []
    for number in range(_ROUNDS):
        directory = scratch / f"round-{number}"
        result, _ = through_engine(directory, "mlr", params, parts, source.read_npz(HELD_OUT), clocks, SHARDS)
        ours.append(1e3 * result["seconds"] / clocks)
        outside.append(1e3 * (result["seconds"] - result["kernel_seconds"]) / clocks)
        bare.append(1e3 * bare_seconds("mlr", params, parts, clocks) / clocks)
        in_step.append(1e3 * bare_seconds("mlr", params, parts, clocks, in_step=True) / clocks)
    what = f"a clock of mlr, {n_examples:,} examples, {PARTITIONS} partitions, {FEATURES} features"
    nodes = "1 reliable and 1 transient node"
    overhead_note = "the clock less the kernels of the node that had the most"
    return [
        figure("engine", what, "ms", ours, bare, "the bare kernel in 2 processes", nodes),
        figure(
            "engine",
            what,
            "ms",
            ours,
            in_step,
            "the same, in step",
            "each clock begins when both have ended the one before",
        ),
        figure(
            "engine", f"overhead of a clock, {n_examples:,} examples", "ms", outside, ours, "the clock", overhead_note
        ),
    ]


def _repeated(part: Arrays, times: int) -> Arrays:
    return {name: np.concatenate([part[name]] * times) for name in ("x", "y")}
